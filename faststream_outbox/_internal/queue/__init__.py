"""The queue engine: each message is handled by one of many workers, with leases, retries and dead letters."""
