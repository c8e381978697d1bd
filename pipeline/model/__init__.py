"""One torch model: loading, scoring, attention, adapters, devices."""
