"""Live view of a run: follows its files and streams changes to a browser."""
