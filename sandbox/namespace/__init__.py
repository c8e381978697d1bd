"""The embedded backend: Linux namespaces, seccomp, cgroups, and a process forked per case."""
