"""The definition of a dispatcher: its fields, their allowed values, and their forms in JSON and in the log.

[Bernstein & Newcomer 4.5, Dispatcher]
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Final

from broker.core.arguments.rule import MILLISECONDS_MAX
from broker.core.cron import Cron
from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from broker.core.selector.selector import Selector
from broker.dispatch.triggers import EVERY_MESSAGE, INTERVAL, KINDS, LENGTH, WHEN_IDLE, TriggerRule
from config.targets import AllowList, Url, parse_command, parse_url

Change = dict[str, object]
Fields = Mapping[str, Any]

KIND: Final = "dispatcher"
"""The first word of the kind of changes in the log."""

DELETED: Final = f"{KIND}.delete"

PLAIN: Final = "plain"
BINARY: Final = "cloudevents-binary"
STRUCTURED: Final = "cloudevents-structured"
FORMATS: Final = (PLAIN, BINARY, STRUCTURED)

RETRY: Final = "retry"
REJECT: Final = "reject"
DEAD_LETTER: Final = "dead-letter"
RULES: Final = (RETRY, REJECT, DEAD_LETTER)

TIMEOUT_ANSWER: Final = "timeout"
SIGNAL_ANSWER: Final = "signal"
TOO_LARGE_ANSWER: Final = "too-large"
OTHER_ANSWER: Final = "other"

CONCURRENCY_MAX: Final = 10_000
BATCH_MAX: Final = 10_000
RATE_MAX: Final = 1_000_000
TIMEOUT_MAX: Final = 86_400_000  # milliseconds: a day
SIZE_MAX: Final = 512 * 2**20
HEADERS_MAX: Final = 64
ARGUMENTS_MAX: Final = 64

_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+", re.ASCII)  # [RFC 9110 5.6.2]
_VARIABLE: Final = re.compile(r"[A-Za-z_][A-Za-z0-9_]*", re.ASCII)
_HTTP_ANSWER: Final = re.compile(r"[345](?:[0-9]{2}|xx)", re.ASCII)
_EXIT_ANSWER: Final = re.compile(r"[1-9][0-9]{0,2}", re.ASCII)
_OWN_HEADERS: Final = frozenset(
    {"content-length", "content-type", "content-encoding", "transfer-encoding", "host", "connection"}
    | {"expect", "upgrade", "te", "trailer", "keep-alive", "proxy-connection"}
    | {"webhook-id", "webhook-timestamp", "webhook-signature"}
)
"""Headers that the broker writes, or that concern the connection."""

_SECRET_HEADERS: Final = frozenset({"authorization", "proxy-authorization", "cookie"})


@dataclass(frozen=True, slots=True)
class Reference:
    """The place of a secret: a `file`, or an environment variable of the broker (`env`)."""

    kind: str
    name: str

    def shown(self) -> dict[str, str]:
        """Return the reference as JSON."""
        return {self.kind: self.name}


@dataclass(frozen=True, slots=True)
class BreakerRule:
    """The rule of the circuit breaker: it opens after so many failed calls in a row; 0: never.

    The first wait is `wait_ms` long. Each further failure doubles the wait, up to `wait_max_ms`.
    """

    failures: int = 5
    wait_ms: int = 1000
    wait_max_ms: int = 60_000


@dataclass(frozen=True, slots=True)
class Definition:
    """The definition of a dispatcher: the queue, the target, the trigger and the load control.

    `url` or `command` is set, never both. `rate`: calls a second; 0: no limit. `latency_ms`: the latency that
    the concurrency adapts to; 0: it is fixed. `size_max`: the most bytes that the bodies of the messages of a
    call have together. `answers`: the rules for answers that do not acknowledge, by status.
    """

    vhost: str
    name: str
    queue: str
    url: Url | None = None
    command: tuple[str, ...] = ()
    trigger: TriggerRule = field(default_factory=TriggerRule)
    batch: int = 1
    concurrency: int = 1
    latency_ms: int = 0
    rate: float = 0.0
    timeout_ms: int = 30_000
    size_max: int = 16 * 2**20
    format: str = PLAIN
    headers: Mapping[str, str | Reference] = field(default_factory=dict)
    secret: Reference | None = None
    ca: str = ""
    answers: Mapping[str, str] = field(default_factory=dict)
    breaker: BreakerRule = BreakerRule()
    priority: int = 0
    selector: str = ""
    paused: bool = False

    @property
    def where(self) -> str:
        """The dispatcher as refusals and log lines name it."""
        return _where(self.vhost, self.name)

    @property
    def target(self) -> str:
        """The URL without its query, which may have credentials, or the path of the command."""
        return self.command[0] if self.url is None else self.url.shown

    @property
    def calls_max(self) -> int:
        """The most calls at once: a single one if the trigger waits for the end of the call before."""
        return 1 if self.trigger.kind == WHEN_IDLE else self.concurrency

    def rule_for(self, answer: str) -> str:
        """Return the rule for an answer: a status, or one of the words for other ends of a call."""
        answers = self.answers
        rule = answers.get(answer)
        if rule is None and self.url is not None and len(answer) == 3:
            rule = answers.get(f"{answer[0]}xx")
        if rule is None and answer == TOO_LARGE_ANSWER:
            return DEAD_LETTER  # no retry makes a message smaller
        return answers.get(OTHER_ANSWER, RETRY) if rule is None else rule

    def require_allowed(self, allowed: AllowList) -> None:
        """Raise TargetForbidden unless the setting `dispatch_allow` covers the target."""
        if self.url is not None:
            covered = allowed.allows_url(self.url)
        else:
            covered = allowed.allows_command(self.command[0])
        if not covered:
            kind = "command" if self.url is None else "url"
            raise TargetForbidden(
                f"{self.where}: '{kind}' is '{self.target}', which the setting dispatch_allow "
                + ("does not cover" if allowed else "does not cover, because the setting is empty")
                + "; start the broker with --dispatch-allow"
            )

    def shown(self) -> dict[str, Any]:
        """Return the definition as JSON. Secrets are references."""
        trigger = {name: value for name, value in asdict(self.trigger).items() if value}
        target: dict[str, Any] = (
            {"command": list(self.command)} if self.url is None else {"url": self.url.text}
        )
        return {
            "queue": self.queue,
            **target,
            "trigger": trigger,
            "batch": self.batch,
            "concurrency": self.concurrency,
            "latency_ms": self.latency_ms,
            "rate": self.rate,
            "timeout_ms": self.timeout_ms,
            "size_max": self.size_max,
            "format": self.format,
            "headers": {
                name: value.shown() if isinstance(value, Reference) else value
                for name, value in self.headers.items()
            },
            "secret": None if self.secret is None else self.secret.shown(),
            "ca": self.ca,
            "answers": dict(self.answers),
            "breaker": asdict(self.breaker),
            "priority": self.priority,
            "selector": self.selector,
            "paused": self.paused,
        }

    def change(self) -> Change:
        """Return the change for the log that sets the dispatcher."""
        return {"kind": KIND, "vhost": self.vhost, "name": self.name, **self.shown()}

    def deletion(self) -> Change:
        """Return the change for the log that deletes the dispatcher."""
        return {"kind": DELETED, "vhost": self.vhost, "name": self.name}

    def with_paused(self, paused: bool) -> Definition:
        """Return the definition, paused or not."""
        return replace(self, paused=paused)

    def with_queue(self, queue: str) -> Definition:
        """Return the definition for a queue with a new name."""
        return replace(self, queue=queue)


class TargetForbidden(PreconditionFailed):
    """The setting `dispatch_allow` does not cover the target of a dispatcher."""


def _where(vhost: str, name: str) -> str:
    return f"dispatcher '{name}' in vhost '{vhost}'"


def definition_of(vhost: str, name: str, given: Fields) -> Definition:
    """Return the definition that a JSON object describes.

    Raises:
        PreconditionFailed: a field is missing, unknown or wrong; the text names the field and the value.
    """
    if not name:
        raise PreconditionFailed("a dispatcher needs a name")
    check_length("dispatcher name", name)
    reader = _Reader(_where(vhost, name), given)
    reader.refuse_unknown(given, FIELDS, "")
    queue = reader.text("queue", required=True)
    url, command = _target(reader)
    trigger = _trigger(reader)
    definition = Definition(
        vhost,
        name,
        queue,
        url,
        command,
        trigger,
        batch=reader.number("batch", 1, 1, BATCH_MAX),
        concurrency=reader.number("concurrency", 1, 1, CONCURRENCY_MAX),
        latency_ms=reader.number("latency_ms", 0, 0, TIMEOUT_MAX),
        rate=reader.rate("rate"),
        timeout_ms=reader.number("timeout_ms", 30_000, 1, TIMEOUT_MAX),
        size_max=reader.number("size_max", 16 * 2**20, 1, SIZE_MAX),
        format=reader.choice("format", PLAIN, FORMATS),
        headers=_headers(reader),
        secret=_reference(reader, "secret", given.get("secret")) if given.get("secret") is not None else None,
        ca=_path(reader, "ca"),
        answers=_answers(reader, url is not None),
        breaker=_breaker(reader),
        priority=reader.number("priority", 0, -(2**31), 2**31 - 1),
        selector=_selector(reader),
        paused=reader.flag("paused"),
    )
    _check_together(definition, reader)
    return definition


def definition_of_change(change: Change) -> Definition:
    """Return the definition in a change of the log. Raises ValueError."""
    given = {name: value for name, value in change.items() if name not in ("kind", "vhost", "name")}
    vhost, name = change.get("vhost"), change.get("name")
    if not isinstance(vhost, str) or not isinstance(name, str):
        raise ValueError(f"no change of a dispatcher: {change}")
    try:
        return definition_of(vhost, name, given)
    except PreconditionFailed as error:
        raise ValueError(error.text) from error


FIELDS: Final = (
    *("queue", "url", "command", "trigger", "batch", "concurrency", "latency_ms", "rate", "timeout_ms"),
    *("size_max", "format", "headers", "secret", "ca", "answers", "breaker", "priority", "selector"),
    "paused",
)
"""The fields of a definition."""

READ_ONLY: Final = ("vhost", "name", "status")
"""Fields that an answer of the API has besides; a request may repeat them."""


class _Reader:
    """Reads the fields of one definition. All methods raise PreconditionFailed."""

    def __init__(self, where: str, given: Fields) -> None:
        self.where = where
        self.given = given

    def refuse(self, name: str, value: object, allowed: str) -> PreconditionFailed:
        """Return the refusal of a value."""
        return PreconditionFailed(f"{self.where}: '{name}' is {_show(value)}, allowed: {allowed}")

    def refuse_unknown(self, given: Fields, known: Sequence[str], inside: str) -> None:
        """Refuse an unknown field, which may be misspelt."""
        for name in given:
            if name not in known and not (not inside and name in READ_ONLY):
                raise PreconditionFailed(
                    f"{self.where}: '{inside}{name}' is not known, allowed: {', '.join(known)}"
                )

    def text(self, name: str, required: bool = False) -> str:
        """Return a text."""
        value = self.given.get(name)
        if value is None and not required:
            return ""
        if not isinstance(value, str) or (required and not value):
            if value is None:
                raise PreconditionFailed(f"{self.where}: '{name}' is missing")
            raise self.refuse(name, value, "a text")
        return value

    def number(self, name: str, default: int, low: int, high: int, inside: Fields | None = None) -> int:
        """Return a whole number."""
        given = self.given if inside is None else inside
        value = given.get(name)
        if value is None:
            return default
        if not isinstance(value, int) or isinstance(value, bool) or not low <= value <= high:
            raise self.refuse(name, value, f"a whole number from {low} to {high}")
        return value

    def rate(self, name: str) -> float:
        """Return a rate."""
        value = self.given.get(name)
        if value is None:
            return 0.0
        right = isinstance(value, int | float) and not isinstance(value, bool)
        if not right or not (value == 0 or 0.001 <= value <= RATE_MAX):
            raise self.refuse(name, value, f"0, or 0.001 to {RATE_MAX} calls a second")
        return float(value)

    def flag(self, name: str) -> bool:
        """Return a boolean."""
        value = self.given.get(name)
        if value is None:
            return False
        if not isinstance(value, bool):
            raise self.refuse(name, value, "true or false")
        return value

    def choice(self, name: str, default: str, choices: Sequence[str]) -> str:
        """Return one of some words."""
        value = self.given.get(name)
        if value is None:
            return default
        if value not in choices:
            raise self.refuse(name, value, ", ".join(choices))
        return str(value)

    def table(self, name: str) -> Fields:
        """Return an object, by default empty."""
        value = self.given.get(name)
        if value is None or value == []:
            return {}
        if not isinstance(value, Mapping):
            raise self.refuse(name, value, "an object")
        return value

    def parsed(self, name: str, value: object, parse: Callable[[object], Any]) -> Any:
        """Return a value that `parse` reads."""
        try:
            return parse(value)
        except ValueError as error:
            raise PreconditionFailed(f"{self.where}: '{name}' is {_show(value)}: {error}") from error


def _show(value: object) -> str:
    text = json.dumps(value, default=str)
    return text if len(text) <= 200 else f"{text[:200]}..."


def _target(reader: _Reader) -> tuple[Url | None, tuple[str, ...]]:
    given = reader.given
    url, command = given.get("url"), given.get("command")
    if (url is None) == (command is None):
        raise PreconditionFailed(f"{reader.where}: it needs either 'url' or 'command', and not both")
    if command is None:
        return reader.parsed("url", url, parse_url), ()
    words: list[Any] = [command] if isinstance(command, str) else command
    right = isinstance(words, list) and 0 < len(words) <= ARGUMENTS_MAX
    if not right or not all(isinstance(word, str) and "\0" not in word for word in words):
        allowed = f"an absolute path, or a list of a path and up to {ARGUMENTS_MAX - 1} arguments"
        raise reader.refuse("command", command, allowed)
    path = reader.parsed("command", words[0], parse_command)
    return None, (path, *words[1:])


def _trigger(reader: _Reader) -> TriggerRule:
    given = reader.table("trigger")
    reader.refuse_unknown(given, ("kind", "length", "every_ms", "cron"), "trigger.")
    kind = given.get("kind", EVERY_MESSAGE)
    if kind not in KINDS:
        raise reader.refuse("trigger.kind", kind, ", ".join(KINDS))
    length = reader.number("length", 0, 1, 10**9, given)
    every_ms = reader.number("every_ms", 0, 1, MILLISECONDS_MAX, given)
    cron = given.get("cron") or ""
    if cron:
        reader.parsed("trigger.cron", cron, Cron)
    if (length > 0) != (kind == LENGTH):
        raise PreconditionFailed(f"{reader.where}: 'trigger.length' goes with the kind {LENGTH}, and only so")
    if every_ms and kind not in (INTERVAL, LENGTH):
        raise PreconditionFailed(
            f"{reader.where}: 'trigger.every_ms' goes with the kinds {INTERVAL} and {LENGTH} only"
        )
    if (kind == INTERVAL) != (bool(cron) or (every_ms > 0 and kind == INTERVAL)):
        raise PreconditionFailed(
            f"{reader.where}: the kind {INTERVAL} needs 'trigger.every_ms' or 'trigger.cron', "
            "and no other kind has 'trigger.cron'"
        )
    if cron and every_ms:
        raise PreconditionFailed(f"{reader.where}: 'trigger' has either 'every_ms' or 'cron', and not both")
    return TriggerRule(kind, length, every_ms, cron)


def _headers(reader: _Reader) -> dict[str, str | Reference]:
    headers: dict[str, str | Reference] = {}
    given = reader.table("headers")
    if len(given) > HEADERS_MAX:
        raise reader.refuse("headers", len(given), f"up to {HEADERS_MAX} headers")
    lowered = [name.lower() for name in given]
    for name, value in given.items():
        called = f"headers.{name}"
        if _TOKEN.fullmatch(name) is None or name.lower() in _OWN_HEADERS or lowered.count(name.lower()) > 1:
            raise PreconditionFailed(
                f"{reader.where}: '{called}' cannot be set: the name is no HTTP token, is used twice, "
                "or belongs to the broker"
            )
        if isinstance(value, Mapping):
            headers[name] = _reference(reader, called, value)
        elif name.lower() in _SECRET_HEADERS:
            raise PreconditionFailed(
                f"{reader.where}: '{called}' is a secret, so it is a reference: "
                '{"file": PATH} or {"env": NAME}'
            )
        elif isinstance(value, str) and value.isascii() and value.isprintable():
            headers[name] = value
        else:
            raise reader.refuse(called, value, "printable ASCII, or a reference to a secret")
    return headers


def _reference(reader: _Reader, name: str, value: object) -> Reference:
    if isinstance(value, Mapping) and len(value) == 1:
        kind, place = next(iter(value.items()))
        if kind == "file" and isinstance(place, str) and place.startswith("/") and "\0" not in place:
            return Reference(kind, place)
        if kind == "env" and isinstance(place, str) and _VARIABLE.fullmatch(place):
            if place.upper().startswith("AMQPD_"):
                raise PreconditionFailed(f"{reader.where}: '{name}' names {place}, a setting of the broker")
            return Reference(kind, place)
    raise PreconditionFailed(  # the value is not shown: it may be the secret itself
        f"{reader.where}: '{name}' is no reference to a secret, allowed: "
        '{"file": ABSOLUTE PATH} or {"env": NAME OF A VARIABLE}'
    )


def _path(reader: _Reader, name: str) -> str:
    value = reader.text(name)
    if value and (not value.startswith("/") or "\0" in value):
        raise reader.refuse(name, value, "an absolute path")
    return value


def _answers(reader: _Reader, http: bool) -> dict[str, str]:
    answers: dict[str, str] = {}
    words = {TIMEOUT_ANSWER, TOO_LARGE_ANSWER, OTHER_ANSWER} | (set() if http else {SIGNAL_ANSWER})
    for answer, rule in reader.table("answers").items():
        status = _HTTP_ANSWER.fullmatch(answer) if http else _EXIT_ANSWER.fullmatch(answer)
        if answer not in words and (status is None or (not http and int(answer) > 255)):
            allowed = "a status from 300 to 599, 3xx, 4xx, 5xx" if http else "an exit status from 1 to 255"
            raise PreconditionFailed(
                f"{reader.where}: 'answers.{answer}' is not known, allowed: "
                f"{allowed}, {', '.join(sorted(words))}"
            )
        if rule not in RULES:
            raise reader.refuse(f"answers.{answer}", rule, ", ".join(RULES))
        answers[answer] = str(rule)
    return answers


def _breaker(reader: _Reader) -> BreakerRule:
    given = reader.table("breaker")
    reader.refuse_unknown(given, ("failures", "wait_ms", "wait_max_ms"), "breaker.")
    usual = BreakerRule()
    wait = reader.number("wait_ms", usual.wait_ms, 1, TIMEOUT_MAX, given)
    longest = reader.number("wait_max_ms", max(usual.wait_max_ms, wait), 1, TIMEOUT_MAX, given)
    if longest < wait:
        raise PreconditionFailed(
            f"{reader.where}: 'breaker.wait_max_ms' is {longest}, less than 'breaker.wait_ms', {wait}"
        )
    return BreakerRule(reader.number("failures", usual.failures, 0, 10**6, given), wait, longest)


def _selector(reader: _Reader) -> str:
    text = reader.text("selector").strip()
    if text:
        try:
            Selector(text)
        except PreconditionFailed as error:
            raise PreconditionFailed(f"{reader.where}: 'selector': {error.text}") from error
    return text


def _check_together(definition: Definition, reader: _Reader) -> None:
    """Refuse fields that contradict each other. Raises PreconditionFailed."""
    where = definition.where
    if definition.trigger.kind == WHEN_IDLE and definition.concurrency > 1:
        raise PreconditionFailed(
            f"{where}: 'concurrency' is {definition.concurrency}, but the trigger {WHEN_IDLE} calls "
            "only while no call is in progress: leave it out, or set 1"
        )
    if definition.format == BINARY and definition.batch > 1:
        raise PreconditionFailed(
            f"{where}: 'batch' is {definition.batch}, but the format {BINARY} has one message in a call"
        )
    if definition.url is None:
        for name in ("headers", "secret", "ca"):
            if reader.given.get(name):
                raise PreconditionFailed(f"{where}: '{name}' is for a 'url', and this is a command")
        if definition.format == BINARY:
            raise PreconditionFailed(f"{where}: the format {BINARY} is for a 'url', and this is a command")
    elif definition.ca and definition.url.scheme != "https":
        raise PreconditionFailed(f"{where}: 'ca' is for a 'url' with https")
