"""What happened in a run: one page to look at, the same as text, and as JSON for machines."""
