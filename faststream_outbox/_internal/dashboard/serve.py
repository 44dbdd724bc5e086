"""The dashboard as a server of its own, on uvicorn. Used by the command line and by whoever has no web application."""

import sys

from faststream_outbox._internal.dashboard.dashboard import Dashboard
from faststream_outbox._internal.dashboard.one_time import is_loopback
from faststream_outbox.errors import InvalidOption

HOST, PORT = "127.0.0.1", 8710


def serve(dashboard: Dashboard, host: str = HOST, port: int = PORT) -> None:
    """Answer until Ctrl-C. Without auth only on this machine, under an address with a token that works once.

    dashboard: from make_dashboard.
    host: the address to bind; another one than a loopback address needs a dashboard with auth=.
    port: the port to bind.
    """
    import uvicorn

    check_host(dashboard, host)
    print(f"Dashboard: {address_of(dashboard, host, port)}", file=sys.stderr, flush=True)  # noqa: T201 - it is for whoever started it
    # The address has the token in it once, and paths have names of queues: neither belongs into an access log.
    uvicorn.run(dashboard, host=host, port=port, log_level="warning", access_log=False, server_header=False)


def check_host(dashboard: Dashboard, host: str) -> None:
    """Refuse to show an open dashboard to others."""
    if dashboard.one_time is not None and not is_loopback(host):
        msg = (
            f"Without auth the dashboard is served on this machine only, not on {host!r}. "
            "Pass auth=BasicAuth({'name': 'password'}) to make_dashboard, or serve it on 127.0.0.1."
        )
        raise InvalidOption(msg)


def address_of(dashboard: Dashboard, host: str, port: int) -> str:
    """What to open in a browser."""
    base = f"http://{f'[{host}]' if ':' in host else host}:{port}"
    return f"{base}/" if dashboard.one_time is None else dashboard.one_time.address(base)
