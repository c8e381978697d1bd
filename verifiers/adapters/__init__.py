"""Verifiers as reward functions of other trainers, inside their process."""
