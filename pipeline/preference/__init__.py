"""Preference optimisation and reward-model training on pairs, rankings and labelled answers."""
