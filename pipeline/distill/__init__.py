"""Distillation from a teacher's distributions, on SFT rows or on the student's own rollouts."""
