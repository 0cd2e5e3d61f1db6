"""The journal that the settings ask for."""

from __future__ import annotations

import time
from collections.abc import Callable

from broker.core.broker import Broker
from broker.core.view import Views
from broker.journal.journaling import Journaling, OffLoop
from broker.journal.writer import JournalWriter
from config.settings import Settings


def microseconds() -> int:
    """The time, in microseconds since 1970."""
    return time.time_ns() // 1000


def journal_of(
    settings: Settings,
    broker: Broker,
    views: Views,
    soon: Callable[[Callable[[], None]], object],
    later: Callable[[float, Callable[[], None]], object],
    off_loop: OffLoop,
) -> Journaling:
    """A journal for a broker that is about to recover; it has no file before there is a record.

    Raises OSError: its folder cannot be read.
    """
    writer = JournalWriter(
        settings.journal_dir or settings.data_dir / "journal",
        settings.node_name,
        microseconds,
        settings.journal_file_bytes,
        settings.journal_file_s,
        settings.journal_free_min,
    )
    return Journaling(
        broker,
        writer,
        settings.journal,
        microseconds,
        views,
        soon,
        later,
        off_loop,
        settings.journal_mandatory,
        settings.journal_sync == "second",
    )
