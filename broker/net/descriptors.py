"""File descriptors: the limit of the process, and the reserve that connections do not get."""

import contextlib
import resource
from typing import Final

RESERVE: Final = 256  # for the log, which keeps up to 64 old segments open, the HTTP API, and the runtime


def raise_limit() -> int:
    """Raise the process's limit to the highest that the system allows, and return this limit."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may report a limit and not grant it
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def connection_descriptors(limit: int) -> int:
    """Return the part of `limit` for AMQP sockets: all but the reserve, or half where descriptors are few."""
    return limit - min(RESERVE, limit // 2)
