"""Exit 0 if the broker in this container accepts publishers and consumers, 1 if not.

If the admin server is off, or requires a certificate, a broker that listens for AMQP counts as ready.
"""

import os
import socket
import ssl
import sys
import tomllib
from collections.abc import Sequence
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from pathlib import Path

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  where to connect
PATIENCE_S = 4
DEFAULTS = {"listen": "127.0.0.1:5672", "admin": "127.0.0.1:15672"}  # the broker's defaults
BROKER = Path("/proc/1/cmdline")  # the first process of a container


def listening(address: str) -> bool:
    """Whether a server accepts connections at `address` (HOST:PORT)."""
    try:
        with socket.create_connection(_place(address), PATIENCE_S):
            return True
    except (OSError, ValueError):
        return False


def ready(address: str, secure: bool = False) -> bool:
    """Whether the broker whose admin server listens on `address` (HOST:PORT) reports that it is ready.

    `secure`: over TLS. The certificate is not verified: the broker is on the same machine.
    """
    try:
        connection = (
            HTTPSConnection(*_place(address), timeout=PATIENCE_S, context=_trusting_all())
            if secure
            else HTTPConnection(*_place(address), timeout=PATIENCE_S)
        )
    except (ValueError, HTTPException):
        return False
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


def setting(name: str, arguments: Sequence[str]) -> str:
    """Return a setting as the broker has loaded it: flag, environment, settings file, defaults file, default.

    `arguments`: the command line of the broker. A list is one text with commas between its items.
    """
    found = given(name, arguments)
    if found is None:
        found = from_file(name, given("config", arguments))
    if found is None:
        found = from_file(name, os.environ.get("AMQPD_CONFIG_DEFAULTS"))
    return (DEFAULTS.get(name, "") if found is None else found).strip()


def given(name: str, arguments: Sequence[str]) -> str | None:
    """Return the value that a flag among `arguments`, or else the environment, gives to a setting."""
    flag = f"--{name.replace('_', '-')}"
    found = os.environ.get(f"AMQPD_{name.upper()}")
    for argument, following in zip(arguments, [*arguments[1:], ""], strict=True):
        if argument == flag:
            found = following
        elif argument.startswith(flag + "="):
            found = argument.removeprefix(flag + "=")
    return found


def from_file(name: str, file: str | None) -> str | None:
    """Return the value of a setting in the settings file; None without a file that has the setting."""
    if not file:
        return None
    try:
        with Path(file).expanduser().open("rb") as stream:
            found = tomllib.load(stream).get(name)
    except (OSError, ValueError, RuntimeError):  # the broker refuses such a file and does not run
        return None
    if isinstance(found, list):
        return ",".join(map(str, found)) or "off"  # without addresses
    return None if found is None else str(found)


def broker_arguments() -> list[str]:
    """Return the command line of the container's first process; empty if it cannot be read."""
    try:
        return BROKER.read_text(errors="replace").split("\0")
    except OSError:
        return []


def healthy(arguments: Sequence[str]) -> bool:
    """Whether the broker with the command line `arguments` is ready."""
    admin = setting("admin", arguments)
    if admin.lower() != "off":
        return ready(admin)
    secure = setting("admin_tls_listen", arguments).split(",")[0]
    if secure.lower() not in ("", "off") and setting("admin_tls_verify", arguments).lower() != "required":
        return ready(secure, secure=True)
    return listening(setting("listen", arguments).split(",")[0])


def _trusting_all() -> ssl.SSLContext:
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context


def _place(address: str) -> tuple[str, int]:
    host, _, port = address.strip().rpartition(":")
    host = host.strip("[]")
    return EVERYWHERE.get(host, host), int(port)


if __name__ == "__main__":
    sys.exit(0 if healthy(broker_arguments()) else 1)
