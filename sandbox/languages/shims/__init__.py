"""Trusted programs that run inside the sandbox; they are read as text, never imported."""
