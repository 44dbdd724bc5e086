"""The inbox: the far end of an outbox, where a message's effects happen exactly once."""
