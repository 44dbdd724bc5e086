"""Publishing: messages become rows in the caller's own transaction, or not at all.

`publish` and `publish_sync` send one INSERT through the caller's session or connection, whatever the
number of messages. They never commit, flush, begin or retry; bad input is refused before any SQL is
sent. `cancel_timer` takes back a message that nobody holds yet. Called by the broker and by
applications that use the engine alone.
"""

from faststream_outbox._internal.connections.caller import AnySession, AnySyncSession
from faststream_outbox._internal.publish.put import cancel_timer, cancel_timer_sync, publish, publish_sync

__all__ = ["AnySession", "AnySyncSession", "cancel_timer", "cancel_timer_sync", "publish", "publish_sync"]
