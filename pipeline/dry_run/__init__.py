"""What a recipe will do before it runs: batch arithmetic and memory."""
