"""Checks the schema and the running system, and names causes: what is wrong, what it costs, and what repairs it."""
