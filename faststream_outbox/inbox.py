"""The inbox: the far end of an outbox, where a message's effects happen exactly once.

A receipt is written in the transaction of the handler's own writes: a message that comes again finds it. `Inbox` for
consumers of any FastStream broker, and without one (`receive`); `SyncInbox` for code without an event loop. FastStream
is imported only by what needs it. Used by applications.
"""

from faststream_outbox._internal.inbox.inbox import Inbox
from faststream_outbox._internal.inbox.receipt import SESSION, Answer, Receipt, SyncReceipt
from faststream_outbox._internal.inbox.sync import SyncInbox

__all__ = ["SESSION", "Answer", "Inbox", "Receipt", "SyncInbox", "SyncReceipt"]
