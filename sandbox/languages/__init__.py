"""Programs in other languages, run as trusted Python programs that become them in the sandbox."""
