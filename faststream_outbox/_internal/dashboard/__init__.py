"""The dashboard: one ASGI application that shows queues and topics, says what is wrong, and lets operators act."""
