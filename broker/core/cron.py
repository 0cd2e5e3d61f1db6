"""Dates of cron expressions, and windows of time that begin at them. All dates are in UTC."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Final, final

from cronsim import CronSim, CronSimError

LENGTH_MAX: Final = 255  # characters
NO_DATE: Final = 0
EPOCH: Final = datetime(2000, 1, 1, tzinfo=UTC)
MS_PER_SECOND: Final = 1000


@final
class Cron:
    """A cron expression of five fields: minute, hour, day, month, day of the week.

    Raises ValueError for a text that is no such expression, or that no date ever matches.
    """

    def __init__(self, text: object) -> None:
        if not isinstance(text, str) or len(text) > LENGTH_MAX:
            raise ValueError(f"not a text of up to {LENGTH_MAX} characters")
        if len(text.split()) != 5:
            raise ValueError("a cron expression has five fields: minute, hour, day, month, day of the week")
        self.text = text
        try:
            next(CronSim(text, EPOCH))
        except CronSimError as error:
            raise ValueError(str(error)) from error
        except StopIteration:
            raise ValueError("no date ever matches the expression") from None

    def next_after(self, date: int) -> int:
        """Return the first matching date after `date`; both are in milliseconds since 1970.

        NO_DATE: there is none within the next decades.
        """
        try:
            found = next(CronSim(self.text, datetime.fromtimestamp(date / MS_PER_SECOND, UTC)))
        except StopIteration:
            return NO_DATE
        return int(found.timestamp() * MS_PER_SECOND)


@final
class Windows:
    """Windows of `duration` milliseconds that begin at the dates of a cron expression."""

    def __init__(self, cron: Cron, duration: int) -> None:
        self.cron = cron
        self.duration = duration

    def end_of(self, date: int) -> int:
        """Return the end of the window that is open at `date`; NO_DATE: none is open."""
        begin = self.cron.next_after(date - self.duration)
        return begin + self.duration if begin != NO_DATE and begin <= date else NO_DATE

    def next_begin(self, date: int) -> int:
        """Return the beginning of the first window after `date`; NO_DATE: there is none."""
        return self.cron.next_after(date)
