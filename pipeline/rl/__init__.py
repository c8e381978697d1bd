"""Reinforcement learning: the loop, the learner, advantages, one optimizer step."""
