"""What a run leaves on disk: manifest, checkpoints, metrics, rollouts, lineage."""
