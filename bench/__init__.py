"""Benchmarks: costs per message, as counts and as ratios against the raw driver in the same run."""
