"""How new weights get from the trainer to servers: by files, through a process group, or by memory
that both open."""
