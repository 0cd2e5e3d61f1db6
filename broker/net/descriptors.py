"""File descriptors: as many as the system allows the process, and a reserve that connections leave alone."""

import contextlib
import resource
from typing import Final

RESERVE: Final = 256  # for the log, which keeps up to 64 old segments open, the HTTP API, and the runtime


def raise_limit() -> int:
    """Let the process have as many as the system allows it; returns how many that are."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != hard:
        with contextlib.suppress(OSError, ValueError):  # a system may name a limit that it does not grant
            resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return 1 << 30 if limit == resource.RLIM_INFINITY else limit


def for_connections(limit: int) -> int:
    """How many of so many may be sockets of AMQP: all but the reserve, or half where there are few."""
    return limit - min(RESERVE, limit // 2)
