"""A private NATS server, from its wheel: `python -m examples.demo.nats <port>`; it ends with a SIGTERM."""

import signal
import subprocess
import sys
import tempfile
from pathlib import Path

PROGRAM = Path(sys.executable).with_name("nats-server")


def main(port: str) -> None:
    """Run it, and end it when this is to end."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit())
    with tempfile.TemporaryDirectory() as directory:
        server = subprocess.Popen([PROGRAM, "-a", "127.0.0.1", "-p", port, "-js", "-sd", directory])
        try:
            server.wait()
        finally:
            server.terminate()
            server.wait()


if __name__ == "__main__":
    main(*sys.argv[1:])
