"""Certificates, and a server in front of PostgreSQL that speaks TLS alone, as `hostssl` has it."""

import asyncio
import contextlib
import ipaddress
import ssl
import struct
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from sqlalchemy import URL

SSL_REQUEST, GSS_REQUEST = 80877103, 80877104
REFUSAL = b"SFATAL\0C28000\0Mno pg_hba.conf entry for this host, no encryption\0\0"


@dataclass(frozen=True, slots=True)
class Certificates:
    """A certificate and its key, and that of the authority which signed it."""

    authority: Path
    certificate: Path
    key: Path

    def options(self, driver: str) -> dict[str, Any]:
        """`connect_args` of an engine that accepts this authority's servers alone."""
        if driver == "asyncpg":
            return {"ssl": ssl.create_default_context(cafile=str(self.authority))}
        return {"sslmode": "verify-full", "sslrootcert": str(self.authority)}


def make_certificates(directory: Path) -> Certificates:
    """A new authority, and a certificate of it for 127.0.0.1."""
    directory.mkdir(parents=True, exist_ok=True)
    signing, serving = ec.generate_private_key(ec.SECP256R1()), ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, directory.name)])
    server = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "127.0.0.1")])
    start = datetime.now(UTC) - timedelta(days=1)

    def certificate(subject: x509.Name, key: ec.EllipticCurvePrivateKey, *extensions: Any) -> bytes:
        builder = x509.CertificateBuilder(name, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(start).not_valid_after(start + timedelta(days=30))
        for extension in extensions:
            builder = builder.add_extension(extension, critical=isinstance(extension, x509.BasicConstraints))
        return builder.sign(signing, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)

    made = Certificates(directory / "authority.pem", directory / "server.pem", directory / "server.key")
    identifier = x509.SubjectKeyIdentifier.from_public_key(signing.public_key())
    usage = x509.KeyUsage(False, False, False, False, False, True, True, False, False)
    made.authority.write_bytes(certificate(name, signing, x509.BasicConstraints(True, None), identifier, usage))
    hosts = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address("127.0.0.1"))])
    by = x509.AuthorityKeyIdentifier.from_issuer_subject_key_identifier(identifier)
    made.certificate.write_bytes(certificate(server, serving, hosts, by))
    plain = (serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    made.key.write_bytes(serving.private_bytes(*plain))
    return made


@dataclass(slots=True)
class Front:
    """Where the TLS is, and how many connections came with it and without."""

    url: URL
    encrypted: int = 0
    refused: int = 0


@asynccontextmanager
async def front(url: URL, certificates: Certificates) -> AsyncIterator[Front]:
    """The same server behind TLS; whoever comes without it is refused."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificates.certificate, certificates.key)
    tasks: set[asyncio.Task[None]] = set()

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        with contextlib.suppress(OSError, EOFError):
            code = GSS_REQUEST
            while code == GSS_REQUEST:
                _, code = struct.unpack("!ii", await reader.readexactly(8))
                writer.write(b"N" if code == GSS_REQUEST else b"")
            if code != SSL_REQUEST:
                there.refused += 1
                writer.write(b"E" + struct.pack("!i", len(REFUSAL) + 4) + REFUSAL)
                return
            writer.write(b"S")
            await writer.start_tls(context)
            there.encrypted += 1
            behind = await asyncio.open_connection(url.host, url.port)
            await asyncio.wait(
                [asyncio.create_task(_pass_on(reader, behind[1])), asyncio.create_task(_pass_on(behind[0], writer))],
                return_when=asyncio.FIRST_COMPLETED,
            )
            behind[1].close()

    async def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = asyncio.ensure_future(serve(reader, writer))
        tasks.add(task)
        try:
            await asyncio.wait([task])
        finally:
            writer.close()

    server = await asyncio.start_server(accept, "127.0.0.1", 0)
    there = Front(url.set(host="127.0.0.1", port=server.sockets[0].getsockname()[1]))
    try:
        yield there
    finally:
        server.close()
        for task in tasks:
            task.cancel()
        if tasks:
            await asyncio.wait(tasks)


async def _pass_on(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with contextlib.suppress(OSError):
        while data := await reader.read(65536):
            writer.write(data)
            await writer.drain()
