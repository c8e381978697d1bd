"""The reward service: verdicts over HTTP, for this pipeline and other trainers."""
