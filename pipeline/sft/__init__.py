"""Supervised fine-tuning: what is learned from written answers, and how they are collected."""
