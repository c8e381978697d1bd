"""Programs run on other machines over HTTP: client and service of SandboxFusion's API."""
