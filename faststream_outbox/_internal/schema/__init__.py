"""The tables: what they look like, what they are called, and whether a database has them as they should be."""
