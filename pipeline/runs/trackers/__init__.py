"""Metrics in trackers of other people, as mirrors: metrics.jsonl stays the truth."""
