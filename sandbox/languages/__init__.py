"""Programs in other languages, run by trusted Python shims that execute them in the sandbox."""
