"""What every optimizer loop shares: optimizer, timing, random state, epochs."""
