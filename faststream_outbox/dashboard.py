"""The dashboard: one ASGI application that shows queues and topics, says what is wrong, and lets operators act.

Closed unless an `auth` lets somebody in. Mounted in FastAPI, Starlette or `AsgiFastStream`, or served by itself. Needs
the extra `dashboard`.
"""

from faststream_outbox._internal.dashboard.actions import Action, Audit
from faststream_outbox._internal.dashboard.auth import BasicAuth, BearerAuth, User
from faststream_outbox._internal.dashboard.content import Content, hide_fields
from faststream_outbox._internal.dashboard.dashboard import Dashboard, address_of, make_dashboard, serve

__all__ = [
    "Action",
    "Audit",
    "BasicAuth",
    "BearerAuth",
    "Content",
    "Dashboard",
    "User",
    "address_of",
    "hide_fields",
    "make_dashboard",
    "serve",
]
