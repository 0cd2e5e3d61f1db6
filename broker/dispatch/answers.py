"""The answers of applications to calls: what a status, an exit status or a failure means for the messages."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final

from broker.dispatch.definition import OTHER_ANSWER, SIGNAL_ANSWER

# how a call ended
ACKNOWLEDGED: Final = "acknowledged"
BUSY: Final = "busy"  # the target asks to wait
FAILED: Final = "failed"  # the answer acknowledges nothing
TIMED_OUT: Final = "timed-out"
UNREACHED: Final = "unreached"  # the target did not get the call
RESULTS: Final = (ACKNOWLEDGED, BUSY, FAILED, TIMED_OUT, UNREACHED)

TOO_MANY_REQUESTS: Final = 429
UNAVAILABLE: Final = 503
SECONDS_DIGITS_MAX: Final = 9  # digits of a Retry-After; longer waits are shortened anyway


@dataclass(frozen=True, slots=True)
class Answer:
    """The end of a call.

    `result`: one of RESULTS. `status`: the status of HTTP or the exit status as text, or a word such as
    `signal`, for the rules of the definition. `text`: what the target said, or why it was not reached.
    `wait_ms`: how long the target asks to wait, if BUSY.
    """

    result: str
    status: str = OTHER_ANSWER
    text: str = ""
    wait_ms: int = 0


def answer_of_http(status: int, retry_after: str | None, text: str, date: int) -> Answer:
    """Return the answer that a status of HTTP is. `date`: now, in milliseconds since 1970.

    [RFC 9110 15]: 2xx acknowledges. 429 and 503 with Retry-After ask to wait.
    """
    if 200 <= status < 300:
        return Answer(ACKNOWLEDGED, str(status))
    if status in (TOO_MANY_REQUESTS, UNAVAILABLE) and retry_after is not None:
        wait = read_retry_after(retry_after, date)
        if wait is not None:
            return Answer(BUSY, str(status), text, wait)
    return Answer(FAILED, str(status), text)


def read_retry_after(text: str, date: int) -> int | None:
    """Return the wait in a header Retry-After, in milliseconds from `date`; None: the text is neither form.

    [RFC 9110 10.2.3]: a number of seconds, or a date.
    """
    text = text.strip()
    if text.isascii() and text.isdigit():
        return int(text[-SECONDS_DIGITS_MAX:]) * 1000 if len(text) <= SECONDS_DIGITS_MAX else 10**12
    try:
        when = parsedate_to_datetime(text)
    except (ValueError, TypeError, OverflowError):
        return None
    if when.tzinfo is None:
        when = when.replace(tzinfo=UTC)
    return max(round(when.timestamp() * 1000) - date, 0)


def answer_of_exit(status: int, text: str) -> Answer:
    """Return the answer that the exit status of a command is; negative: the number of a signal."""
    if status == 0:
        return Answer(ACKNOWLEDGED, "0")
    if status < 0:
        return Answer(FAILED, SIGNAL_ANSWER, f"killed by signal {-status}; {text}".removesuffix("; "))
    return Answer(FAILED, str(status), text)
