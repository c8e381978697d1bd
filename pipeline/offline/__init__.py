"""Work on recorded runs: replay updates, judge rollouts again, profile a step."""
