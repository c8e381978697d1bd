"""The paper, one file per step, and the command line on top."""
