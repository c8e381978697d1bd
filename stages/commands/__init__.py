"""The commands that are no training stage."""
