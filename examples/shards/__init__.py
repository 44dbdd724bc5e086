"""Several databases, one application: `python -m examples.shards`."""
