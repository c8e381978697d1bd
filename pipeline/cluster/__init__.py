"""Several processes under one update: who they are, their shards and their micro-batches."""
