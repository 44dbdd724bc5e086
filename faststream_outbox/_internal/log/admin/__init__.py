"""What operators do with groups and with the log: positions, retention, partitions."""
