"""What tests, demos and benchmarks need: a private PostgreSQL that comes from PyPI.

Nothing in production imports this package, and nothing is imported by importing it.
"""
