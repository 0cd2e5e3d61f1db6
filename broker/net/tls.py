"""The TLS configuration: certificate, key, trusted authorities, and the user in a client's certificate."""

from __future__ import annotations

import asyncio
import errno
import os
import ssl
import stat
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import BinaryIO, Final, NamedTuple, final

import structlog

from broker.adapters.access import Origin, is_loopback
from broker.auth.certificates import NO_CERTIFICATE, describe_certificate, name_in
from config.settings import Settings

VERIFY: Final = {"off": ssl.CERT_NONE, "optional": ssl.CERT_OPTIONAL, "required": ssl.CERT_REQUIRED}
VERSIONS: Final = {"1.2": ssl.TLSVersion.TLSv1_2, "1.3": ssl.TLSVersion.TLSv1_3}

WEBSOCKET: Final = "websocket"  # an extra of transports that asyncio does not define: whether a WebSocket

NameIn = Callable[[dict[str, object]], str | None]

_log = structlog.get_logger("amqpd.net")


class TlsError(Exception):
    """TLS cannot be set up; the text names the file and the reason."""


@final
class HandshakeFailed(ssl.SSLError):
    """A failed handshake: `cause` is the reason, `alert` the alert for the peer. [RFC 8446 6.2]"""

    def __init__(self, error: ssl.SSLError, alert: bytes) -> None:
        super().__init__(*error.args)
        self.cause = getattr(error, "verify_message", "") or error.reason or str(error)
        self.alert = alert


@final
class TlsSession(ssl.SSLObject):
    """The TLS of a connection. Event loops drop the alert of a failed handshake; the error keeps it."""

    outgoing: ssl.MemoryBIO

    def do_handshake(self) -> None:
        """Continue the handshake. Raises HandshakeFailed; ssl.SSLWantReadError until the peer answers."""
        try:
            super().do_handshake()
        except (ssl.SSLWantReadError, ssl.SSLWantWriteError):
            raise
        except ssl.SSLError as error:
            raise HandshakeFailed(error, self.outgoing.read()) from error


@final
class TlsContext(ssl.SSLContext):
    """A context whose connections are TlsSessions."""

    sslobject_class: type[ssl.SSLObject] = TlsSession

    def wrap_bio(
        self,
        incoming: ssl.MemoryBIO,
        outgoing: ssl.MemoryBIO,
        server_side: bool = False,
        server_hostname: str | bytes | None = None,
        session: ssl.SSLSession | None = None,
    ) -> TlsSession:
        """Begin a connection that reads from `incoming` and writes to `outgoing`."""
        tls_session = super().wrap_bio(incoming, outgoing, server_side, server_hostname, session)
        assert isinstance(tls_session, TlsSession)
        tls_session.outgoing = outgoing
        return tls_session


class Source(NamedTuple):
    """A file of certificates or a key, and the setting that names the file."""

    setting: str
    path: Path


@final
class Tls:
    """The TLS of a port's connections; `context` is the context of the next connection.

    Without a `key` the certificate's file has the key. `name_in` returns the user that a verified certificate
    names. Raises TlsError.
    """

    def __init__(
        self,
        certificate: Source,
        key: Source | None,
        authorities: Source | None,
        verify: str,
        min_version: str,
        name_in: NameIn | None,
    ) -> None:
        self.certificate = certificate
        self._key = key or Source(certificate.setting.replace("certificate", "key"), certificate.path)
        self._authorities = authorities
        self._verify = VERIFY[verify]
        self._min_version = VERSIONS[min_version]
        self.name_in = name_in
        self.context = self._make()

    def reload(self) -> None:
        """Read the files again. Raises TlsError, and keeps the present context then."""
        self.context = self._make()

    def _make(self) -> ssl.SSLContext:
        context = TlsContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = self._min_version
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_CIPHER_SERVER_PREFERENCE
        certificate, key, authorities = self.certificate, self._key, self._authorities
        for source in (certificate, key, authorities):
            _check_readable(source)
        try:
            context.load_cert_chain(certificate.path, key.path, _no_password)
        except (OSError, ValueError) as error:
            raise TlsError(
                f"{certificate.setting} = {certificate.path}, {key.setting} = {key.path}: {_reason(error)}"
            ) from error
        if authorities is not None:
            try:
                context.load_verify_locations(authorities.path)
            except (OSError, ValueError) as error:
                raise TlsError(f"{authorities.setting} = {authorities.path}: {_reason(error)}") from error
        context.verify_mode = self._verify
        return context


def tls_of(settings: Settings) -> Tls | None:
    """Return the TLS of the AMQP ports by the settings; None without an address for TLS. Raises TlsError."""
    if settings.tls_certificate is None or not (settings.tls_listen or settings.websocket_tls_listen):
        return None
    return Tls(
        Source("tls_certificate", settings.tls_certificate),
        _source("tls_key", settings.tls_key),
        _source("tls_ca", settings.tls_ca) if settings.tls_verify != "off" else None,
        settings.tls_verify,
        settings.tls_min_version,
        lambda shown: name_in(shown, settings.tls_login_from, settings.tls_login_san_type),
    )


def admin_tls_of(settings: Settings) -> Tls | None:
    """Return the admin port's TLS: its own files, else AMQP's; None without an address. Raises TlsError."""
    if not settings.admin_tls_listen:
        return None
    certificate = _source("admin_tls_certificate", settings.admin_tls_certificate)
    key = _source("admin_tls_key", settings.admin_tls_key)
    if certificate is None:
        certificate = _source("tls_certificate", settings.tls_certificate)
        key = _source("tls_key", settings.tls_key)
    assert certificate is not None  # the settings refuse a TLS address without a certificate
    authorities = _source("admin_tls_ca", settings.admin_tls_ca) or _source("tls_ca", settings.tls_ca)
    verify = settings.admin_tls_verify
    trusted = authorities if verify != "off" else None
    return Tls(certificate, key, trusted, verify, settings.tls_min_version, None)


def reload_all(served: Iterable[Tls]) -> None:
    """Read the files of all ports again; if this fails, log the reason and change nothing."""
    reloaded = False
    for tls in served:
        reloaded = True
        try:
            tls.reload()
        except TlsError as error:
            _log.error("TLS files not reloaded, the previous ones stay in use", reason=str(error))
        else:
            _log.info("TLS certificates reloaded", certificate=str(tls.certificate.path))
    if not reloaded:
        _log.info("no TLS certificates to reload: TLS is off")


def _source(setting: str, path: Path | None) -> Source | None:
    return None if path is None else Source(setting, path)


def origin_of(transport: asyncio.Transport, name_in: NameIn | None, since: int) -> Origin:
    """Return the origin of a connection's peer, with the name in its certificate; `since` as in Origin."""
    peer, local = transport.get_extra_info("peername"), transport.get_extra_info("sockname")
    if not isinstance(peer, tuple) or not isinstance(local, tuple):
        return Origin("", 0, False, since=since)  # the socket is closed already
    host = str(peer[0])
    identity, version, cipher, shown = None, "", "", NO_CERTIFICATE
    websocket = bool(transport.get_extra_info(WEBSOCKET, False))
    tls = transport.get_extra_info("ssl_object")
    if tls is not None:
        certificate = tls.getpeercert()  # empty unless the certificate was verified
        identity = name_in(certificate) if certificate and name_in is not None else None
        if certificate:
            shown = describe_certificate(certificate)
        version, cipher = tls.version() or "", (tls.cipher() or ("",))[0]
    return Origin(
        host,
        int(peer[1]),
        is_loopback(host),
        identity,
        version,
        cipher,
        local_address=str(local[0]),
        local_port=int(local[1]),
        since=since,
        websocket=websocket,
        certificate=shown,
    )


def open_regular(path: Path | str) -> BinaryIO:
    """Open a regular file for reading. Opening a FIFO would wait for a writer and stop the event loop.

    Raises OSError.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(errno.EINVAL, "not a regular file", str(path))
        return os.fdopen(descriptor, "rb")
    except OSError:
        os.close(descriptor)
        raise


def _check_readable(source: Source | None) -> None:
    if source is not None:
        try:
            open_regular(source.path).close()
        except OSError as error:
            raise TlsError(f"{source.setting} = {source.path}: cannot be read: {error.strerror}") from error


def _no_password() -> str:
    raise ValueError("the key is encrypted; use a key without a password")


def _reason(error: Exception) -> str:
    """Return OpenSSL's error, in its words."""
    if isinstance(error, ssl.SSLError):
        return (error.reason or str(error)).replace("_", " ").lower()
    return str(error)
