"""The answers of applications to calls: what a status, an exit status or a failure means for the messages."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC
from email.utils import parsedate_to_datetime
from typing import Final
from urllib.parse import quote, unquote_plus

from broker.dispatch.definition import OTHER_ANSWER, SIGNAL_ANSWER
from config.targets import HIDDEN, Url

# how a call ended
ACKNOWLEDGED: Final = "acknowledged"
BUSY: Final = "busy"  # the target asks to wait
FAILED: Final = "failed"  # the answer acknowledges nothing
TIMED_OUT: Final = "timed-out"
UNREACHED: Final = "unreached"  # the target did not get the call
RESULTS: Final = (ACKNOWLEDGED, BUSY, FAILED, TIMED_OUT, UNREACHED)

TOO_MANY_REQUESTS: Final = 429
UNAVAILABLE: Final = 503
WHSEC: Final = "whsec_"  # the prefix of a key of signatures in Base64 [Standard Webhooks]
PART_MIN: Final = 4  # characters of a part of a secret, or of a value in a URL, that are worth hiding

_SIGN: Final = r"""["']?\s*[:=,]\s*["']?"""  # between a name and its value in headers, JSON and Python
_USER: Final = re.compile(r"(?<=://)[^/\s@?#]+(?=@)")  # user:password@
_HEADER: Final = re.compile(
    rf"""\b((?:proxy-)?authorization|cookie|webhook-signature)({_SIGN})[^"'\r\n\\]+""", re.IGNORECASE
)
_SCHEME: Final = re.compile(r"\b((?i:bearer|basic)\s+)(?=[a-z]*[A-Z0-9._~+/=-])[A-Za-z0-9._~+/=-]{8,}")

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


def hide_secrets(text: str, secrets: Iterable[bytes], url: Url | None) -> str:
    """Return what a target or a library said about a call without the secrets of the call.

    `secrets`: the secrets that the call has read. Hidden are the secrets, in full and without their scheme;
    the query of `url` and its values; users in URLs; the values of headers with credentials. A target may
    send its request back in an answer, which the log and the API would then show.
    """
    hidden = {form for secret in secrets for form in _forms_of_secret(secret)}
    if url is not None and url.has_query:
        text = text.replace(url.text, url.shown)
        for field in url.text.partition("?")[2].split("&"):
            value = field.partition("=")[2] or field
            hidden |= {form for form in (value, unquote_plus(value)) if len(form) >= PART_MIN}
    for form in sorted(hidden, key=len, reverse=True):
        text = text.replace(form, HIDDEN)
        text = _hide_cut_end(text, form)
    text = _USER.sub(HIDDEN, text)
    text = _HEADER.sub(rf"\1\2{HIDDEN}", text)
    return _SCHEME.sub(rf"\1{HIDDEN}", text)


def _forms_of_secret(secret: bytes) -> set[str]:
    """Return the texts that would show a secret."""
    whole = secret.decode("latin-1").strip()
    forms = {whole, whole.partition(" ")[2].strip(), whole.removeprefix(WHSEC)}
    forms |= {json.dumps(form)[1:-1] for form in forms} | {quote(form, safe="") for form in forms}
    return {form for form in forms if form and (form == whole or len(form) >= PART_MIN)}


def _hide_cut_end(text: str, form: str) -> str:
    """Hide the beginning of a secret at the end of a text, which may have been cut."""
    for size in range(min(len(form) - 1, len(text)), PART_MIN - 1, -1):
        if text.endswith(form[:size]):
            return text[:-size] + HIDDEN
    return text
