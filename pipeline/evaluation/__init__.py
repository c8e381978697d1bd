"""Measure a checkpoint on held-out problems and published benchmarks."""
