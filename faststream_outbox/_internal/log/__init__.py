"""The ordered log: topics, consumer groups and replay on PostgreSQL."""
