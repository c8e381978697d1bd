"""Our verifiers as the reward functions of other trainers, inside their own process."""
