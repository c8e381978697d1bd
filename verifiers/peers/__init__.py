"""Judges of other projects, for comparison. They are plugins: no recipe uses them by default."""
