"""Published data sets, by name or from a path, read as problems through column layouts."""
