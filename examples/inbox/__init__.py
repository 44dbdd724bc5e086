"""A consumer that takes effect once, whatever happens to it: `python -m examples.inbox`."""
