"""From a problem and a response to a verdict. Never imports torch."""
