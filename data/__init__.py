"""Problems, corpora and filters. Knows nothing of the rest of the project."""
