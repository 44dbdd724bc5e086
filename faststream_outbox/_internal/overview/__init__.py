"""Read-only questions about queues and topics: how many, how old, who, why not. They lease nothing and lock nothing."""
