"""Verifiers of programs: run in the sandbox, judged outside of it."""
