"""Learning from which of two answers is better: examples, their reference, steps and rounds."""
