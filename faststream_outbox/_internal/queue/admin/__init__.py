"""What operators do with queues: dead letters, pause and resume."""
