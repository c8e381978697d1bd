"""Verifiers of how a response is written: format, language, length, instructions."""
