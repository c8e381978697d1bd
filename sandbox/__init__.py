"""Where untrusted code will run. Nothing executes model-written code yet."""
