"""Log lines on standard error: text for a terminal, or one JSON object per line.

*Owns* the configuration of structlog and of the standard library's logging, whose records (asyncio, uvicorn,
warnings) have the same form. Values from clients cannot break a line or move the cursor.
"""

import heapq
import logging
import os
import sys
from collections import OrderedDict, deque
from collections.abc import Callable, Sequence
from io import StringIO
from typing import Final, TextIO

import structlog
from structlog.typing import EventDict, ExcInfo, FilteringBoundLogger, Processor, WrappedLogger

LEVELS: Final = {
    "debug": logging.DEBUG,
    "info": logging.INFO,
    "warning": logging.WARNING,
    "error": logging.ERROR,
}

QUIET: Final = {"uvicorn": logging.WARNING, "uvicorn.error": logging.ERROR, "asyncio": logging.WARNING}
"""Loggers of libraries, and the lowest level that they log. The daemon logs the other events itself."""


class Seldom:
    """Limits one kind of log line to one in an interval, so that a flood does not fill the log."""

    def __init__(self, clock: Callable[[], float], seconds: float = 10.0) -> None:
        self._clock = clock
        self._seconds = seconds
        self._next = clock()
        self._left_out = 0

    def passes(self) -> bool:
        """Whether a line may be written now."""
        now = self._clock()
        if now < self._next:
            self._left_out += 1
            return False
        self._next = now + self._seconds
        return True

    def is_idle(self) -> bool:
        """Whether the next line may be written now."""
        return self._clock() >= self._next

    def warning(self, log: FilteringBoundLogger, event: str, **values: object) -> None:
        """Log a warning if a line may be written now, with the number of lines left out before."""
        if self.passes():
            log.warning(event, **values, not_logged=self.left_out())

    def left_out(self) -> int:
        """Return the number of lines left out since the last call."""
        count, self._left_out = self._left_out, 0
        return count


class SeldomEach:
    """Limits each kind of log line, and each object that the lines are about, to one line in an interval.

    `most`: the objects with an interval of their own. The lines of further objects share one interval.
    """

    def __init__(self, clock: Callable[[], float], seconds: float = 10.0, most: int = 1000) -> None:
        self._clock = clock
        self._seconds = seconds
        self._most = most
        self._each: OrderedDict[tuple[str, ...], Seldom] = OrderedDict()  # in the order of their last lines
        self._rest = Seldom(clock, seconds)

    def warning(
        self, log: FilteringBoundLogger, event: str, names: tuple[str, ...], **values: object
    ) -> None:
        """Log a warning about the object with these names, unless such a line has been written recently."""
        key = (event, *names)
        seldom = self._each.get(key)
        if seldom is None:
            self._forget_idle()
            if len(self._each) < self._most:
                seldom = self._each[key] = Seldom(self._clock, self._seconds)
            else:
                seldom = self._rest
        if seldom.passes():
            if key in self._each:
                self._each.move_to_end(key)
            log.warning(event, **values, not_logged=seldom.left_out())

    def _forget_idle(self) -> None:
        """Forget the objects whose next line may be written now, the earliest ones first."""
        while self._each and next(iter(self._each.values())).is_idle():
            self._each.popitem(last=False)


def endpoints(addresses: Sequence[tuple[str, int]]) -> str:
    """Return addresses as `HOST:PORT` with commas between them; off without any."""
    return (
        ",".join(f"[{host}]:{port}" if ":" in host else f"{host}:{port}" for host, port in addresses) or "off"
    )


CHANGES: Final = frozenset({"changed by an operator", "queue purged"})
"""The events of the audit log that say what was changed."""

OTHERS: Final = frozenset(
    {
        "connection opened",
        "connection closed",
        "connection lost",
        "login refused",
        "session of the page opened",
        "session of the page closed",
        "request refused",
        "channel error",
        "link error",
        "session error",
        "connection error",
    }
)
"""The other events of the audit log."""

AUDIT_MAX: Final = 2000

# many connections, or refused ones, do not drive out the changes
_changes: deque[dict[str, object]] = deque(maxlen=AUDIT_MAX)
_others: deque[dict[str, object]] = deque(maxlen=AUDIT_MAX)


def recent_audit() -> list[dict[str, object]]:
    """Return the latest lines of the audit log, the oldest first: up to AUDIT_MAX changes and others."""
    return list(heapq.merge(list(_changes), list(_others), key=lambda line: str(line.get("time", ""))))


def _keep_audit(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Keep the lines of the audit log for the management page."""
    del logger, method
    name = event.get("event")
    kept = _changes if name in CHANGES else _others if name in OTHERS else None
    if kept is not None:
        kept.append({key: str(value) for key, value in event.items()})
    return event


def configure(log_format: str, log_level: str, stream: TextIO | None = None) -> None:
    """Send every log line of the process to `stream` (standard error), from `log_level` up.

    `log_format` is `console` or `json`. Colours are used on a terminal only, and not if NO_COLOR is set.
    """
    out = sys.stderr if stream is None else stream
    level = LEVELS[log_level]
    shared: list[Processor] = [
        structlog.contextvars.merge_contextvars,
        structlog.stdlib.add_log_level,
        structlog.processors.TimeStamper(fmt="iso", utc=True, key="time"),
    ]
    handler = logging.StreamHandler(out)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[*shared, _name_logger],
            processors=[
                structlog.stdlib.ProcessorFormatter.remove_processors_meta,
                *_renderer(log_format, out),
            ],
        )
    )
    root = logging.getLogger()
    root.handlers[:] = [handler]
    root.setLevel(level)
    for name, least in QUIET.items():
        logger = logging.getLogger(name)
        logger.handlers.clear()
        logger.propagate = True
        logger.setLevel(max(level, least))
    logging.captureWarnings(capture=True)
    structlog.configure(
        processors=[*shared, _keep_audit, structlog.stdlib.ProcessorFormatter.wrap_for_formatter],
        wrapper_class=structlog.make_filtering_bound_logger(level),
        logger_factory=structlog.stdlib.LoggerFactory(),
        cache_logger_on_first_use=False,  # a second call of `configure` must reach loggers that exist
    )


def _renderer(log_format: str, out: TextIO) -> list[Processor]:
    if log_format == "json":
        return [
            structlog.processors.format_exc_info,
            structlog.processors.JSONRenderer(default=str),
        ]
    console = structlog.dev.ConsoleRenderer(
        colors=out.isatty() and not os.environ.get("NO_COLOR"),
        timestamp_key="time",
        exception_formatter=_traceback,
    )
    return [_escape, console]


def _name_logger(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Add the name of the library that logs a line."""
    del logger, method
    event["logger"] = event["_record"].name
    return event


def _traceback(out: TextIO, exc_info: ExcInfo) -> None:
    """Write a traceback without the values of local variables, which may be passwords."""
    plain = StringIO()
    structlog.dev.plain_traceback(plain, exc_info)
    out.write("\n".join(_visible(line) for line in plain.getvalue().split("\n")))


def _visible(text: str) -> str:
    return text if text.isprintable() else "".join(c if c.isprintable() else repr(c)[1:-1] for c in text)


def _escape(logger: WrappedLogger, method: str, event: EventDict) -> EventDict:
    """Escape control characters, so that no value can forge a line or control a terminal."""
    del logger, method
    for key, value in event.items():
        if isinstance(value, str):
            event[key] = _visible(value)
    return event
