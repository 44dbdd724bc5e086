"""The test broker, and the programs of a private PostgreSQL."""
