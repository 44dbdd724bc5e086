"""The FastStream adapter: broker, routers and messages."""
