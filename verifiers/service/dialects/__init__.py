"""Reward protocols of other trainers, one file per dialect."""
