"""The reward service: verdicts over HTTP, for whoever trains."""
