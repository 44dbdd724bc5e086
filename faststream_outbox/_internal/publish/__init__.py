"""Publishing: messages become rows in the caller's own transaction, or not at all."""
