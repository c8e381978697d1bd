"""Sampling engines behind one protocol, and verified weight syncs."""
