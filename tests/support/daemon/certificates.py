"""Certificates for a test: an authority, the broker's, clients' ones, and one of a foreign authority."""

import re
import ssl
from pathlib import Path
from typing import Any

import pika
import trustme

from tests.support.daemon.daemon import Address, Daemon


class Certificates:
    """Files of an authority that the broker and its clients trust."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.folder = folder
        self.authority = trustme.CA()
        self.authority.cert_pem.write_to_path(str(folder / "ca.pem"))
        self.server = folder / "server.pem"
        self.renew()

    def renew(self) -> None:
        """Give the broker another certificate."""
        issued = self.authority.issue_cert("localhost", "127.0.0.1")
        issued.private_key_and_cert_chain_pem.write_to_path(str(self.server))

    def client(self, common_name: str, *names: str, authority: trustme.CA | None = None) -> Path:
        """Return the file with a client's certificate and key."""
        issued = (authority or self.authority).issue_cert(*(names or ("client",)), common_name=common_name)
        path = self.folder / f"client-{len(list(self.folder.iterdir()))}.pem"
        issued.private_key_and_cert_chain_pem.write_to_path(str(path))
        return path

    def foreign(self, common_name: str) -> Path:
        """A client's certificate of another authority."""
        return self.client(common_name, authority=trustme.CA())

    def trusting(self, certificate: Path | None = None) -> ssl.SSLContext:
        """Return a client's context that trusts the broker, with a certificate or without."""
        context = ssl.create_default_context(cadata=self.authority.cert_pem.bytes().decode())
        if certificate is not None:
            context.load_cert_chain(certificate)
        return context

    def options(self, *more: str) -> tuple[str, ...]:
        """Flags of a broker that speaks TLS, and knows whose certificates to take if `more` has it ask."""
        authorities = ("--tls-ca", str(self.folder / "ca.pem")) if "--tls-verify" in more else ()
        return ("--tls-listen", "127.0.0.1:0", "--tls-certificate", str(self.server), *authorities, *more)


def secure_address(daemon: Daemon) -> Address:
    """The address of AMQP over TLS."""
    match = re.search(r"amqps=(\S+):(\d+)", daemon.stdout.text())
    assert match is not None, daemon.stdout.text()
    return Address(match[1], int(match[2]))


def connect(daemon: Daemon, context: ssl.SSLContext, **options: Any) -> pika.BlockingConnection:
    """A client's connection over TLS."""
    address = secure_address(daemon)
    secure = pika.SSLOptions(context, "localhost")
    return pika.BlockingConnection(
        pika.ConnectionParameters(address.host, address.port, ssl_options=secure, **options)
    )
