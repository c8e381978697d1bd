"""How other trainers ask for rewards: one file per dialect, each with its traps."""
