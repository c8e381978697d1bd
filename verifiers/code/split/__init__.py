"""The two sides of a trial, which run inside the sandboxes and are shipped there as source."""
