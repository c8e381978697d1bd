"""Problems, corpora and filters. Imports no other package of the project."""
