"""FastAPI: handlers of messages with FastAPI's `Depends`, and the shortcuts for their parameters."""
