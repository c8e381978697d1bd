"""The Docker backend: the embedded executor inside warm, hardened containers."""
