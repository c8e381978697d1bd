"""Check that a machine can train and that a model can be trained; one small check per pitfall."""
