"""Whether a process is well, from what its loops do and not from whether it answers."""
