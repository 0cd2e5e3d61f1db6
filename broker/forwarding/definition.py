"""The definition of a shovel: RabbitMQ's fields, checked and typed. [RabbitMQ dynamic shovels]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Final, final

from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from broker.core.values import show
from broker.forwarding.uri import NOT_A_URI, Uri, parse_uri, show_uri
from protocol.amqp091 import properties as p
from protocol.amqp091.methods import short_string
from protocol.amqp091.table import EMPTY_TABLE, encode_table

SHOVEL: Final = "shovel"
"""The component of the parameters that define shovels."""

PAUSED: Final = "paused"
"""The field of amqpd that pauses a shovel."""

ON_CONFIRM: Final = "on-confirm"
ON_PUBLISH: Final = "on-publish"
NO_ACK: Final = "no-ack"
EXACTLY_ONCE: Final = "exactly-once"
ACK_MODES: Final = (ON_CONFIRM, ON_PUBLISH, NO_ACK, EXACTLY_ONCE)
DEDUP_PRODUCERS: Final = "x-dedup-producers"
ORIGINS_MAX: Final = 1000  # producers that a queue remembers, if the definition does not say

AMQP091: Final = "amqp091"
LOCAL: Final = "local"
PROTOCOLS: Final = (AMQP091, LOCAL)

NEVER: Final = -1
QUEUE_LENGTH: Final = -2
PREFETCH: Final = 1000
RECONNECT_DELAY: Final = 5  # seconds
NUMBER_MAX: Final = 2**31 - 1
PREFETCH_MAX: Final = 65535
RATE_MAX: Final = 1_000_000  # messages in a second

OLD_NAMES: Final = {
    "prefetch-count": "src-prefetch-count",
    "delete-after": "src-delete-after",
    "add-forward-headers": "dest-add-forward-headers",
    "add-timestamp-header": "dest-add-timestamp-header",
    "publish-properties": "dest-publish-properties",
}
"""The names of fields in RabbitMQ before 3.7, and the present names."""

NUMBER_RANGES: Final = {"delivery_mode": (1, 2), "priority": (0, 255), "timestamp": (0, 2**63 - 1)}
"""The smallest and the largest value of each property that is a number."""

Fields = Mapping[str, object]


@final
class SourceEnd:
    """The source of a shovel: a queue, or an exchange with a binding key.

    `uris`: at least one; each attempt to connect uses the next one. `table`: the arguments of the queue's
    declaration; `arguments`: the same, encoded. `consumer_arguments`: encoded. `delete_after`: the number of
    messages after which the shovel is deleted, NEVER, or QUEUE_LENGTH. `predeclared`: the queue must exist.
    """

    def __init__(self, uris: list[Uri]) -> None:
        self.uris = uris
        self.queue = ""
        self.exchange = ""
        self.key = ""
        self.table: dict[str, object] = {}
        self.arguments = EMPTY_TABLE
        self.consumer_arguments = EMPTY_TABLE
        self.prefetch = PREFETCH
        self.delete_after = NEVER
        self.predeclared = False


@final
class DestinationEnd:
    """The destination of a shovel: a queue, an exchange, or the exchange that each message names.

    `exchange` and `key`: None for the value of each message. `arguments`: of the queue's declaration,
    encoded. `predeclared`: the queue must exist. `declares`: the queue is declared even if it exists, so that
    another queue with this name is refused.
    `properties`: places and encoded values of properties that are set. `adds_headers`: each message gets the
    header `x-shovelled`. `adds_time`: each message gets the header `x-shovelled-timestamp`.
    `names_origins`: messages have positions if the broker remembers them, also in other modes than
    `exactly-once`.
    """

    def __init__(self, uris: list[Uri]) -> None:
        self.uris = uris
        self.queue = ""
        self.exchange: str | None = None
        self.key: str | None = None
        self.arguments = EMPTY_TABLE
        self.predeclared = False
        self.declares = False
        self.properties: list[tuple[int, bytes]] = []
        self.adds_headers = False
        self.adds_time = False
        self.names_origins = False


@final
class Definition:
    """The definition of the shovel `name` in the virtual host `vhost`.

    `reconnect_delay`: seconds after a failure; 0: no other attempt. `paused`: the shovel does not run.
    `rate`: messages in a second at most; 0: no limit. `kind`: the kind of the object, for texts.
    """

    kind = SHOVEL

    def __init__(self, vhost: str, name: str, source: SourceEnd, destination: DestinationEnd) -> None:
        self.vhost = vhost
        self.name = name
        self.source = source
        self.destination = destination
        self.ack_mode = ON_CONFIRM
        self.reconnect_delay = RECONNECT_DELAY
        self.paused = False
        self.rate = 0

    @property
    def where(self) -> str:
        """The shovel in texts for people."""
        return f"{self.kind} '{self.name}' in vhost '{self.vhost}'"


def parse_definition(vhost: str, name: str, value: object) -> Definition:
    """Return the definition in the value of a parameter.

    Raises PreconditionFailed, which names the field and its value. No text has the password of a URI.
    """
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the value of shovel '{name}' is not an object")
    fields = _renamed(value)
    reader = _Reader(fields)
    definition = Definition(vhost, name, _read_source(reader, vhost), _read_destination(reader, vhost))
    definition.ack_mode = reader.choice("ack-mode", ACK_MODES, ON_CONFIRM)
    definition.reconnect_delay = reader.number("reconnect-delay", RECONNECT_DELAY, NUMBER_MAX)
    definition.paused = reader.flag(PAUSED)
    definition.rate = reader.number("rate", 0, RATE_MAX)
    if definition.rate:  # as many messages may be on their way when the rate is reached
        prefetch = definition.source.prefetch or definition.rate
        definition.source.prefetch = min(prefetch, definition.rate, PREFETCH_MAX)
    for field in fields:
        if field not in reader.known:
            raise PreconditionFailed(f"'{field}' is not known, allowed: {', '.join(sorted(reader.known))}")
    _check_together(definition)
    return definition


def _renamed(value: Mapping[str, object]) -> dict[str, object]:
    """Return the fields under their present names. Raises PreconditionFailed for a field with both names."""
    fields = dict(value)
    for old, new in OLD_NAMES.items():
        if old in fields:
            if new in fields:
                raise PreconditionFailed(f"'{old}' and '{new}' are the same field, and both are present")
            fields[new] = fields.pop(old)
    return {name: each for name, each in fields.items() if each is not None}


def _read_source(reader: _Reader, vhost: str) -> SourceEnd:
    protocol = reader.choice("src-protocol", PROTOCOLS, AMQP091)
    end = SourceEnd(reader.uris("src-uri", vhost, protocol))
    end.queue = reader.name("src-queue")
    end.exchange = reader.name("src-exchange")
    if bool(end.queue) == bool(end.exchange):
        which = "both are present" if end.queue else "both are missing"
        raise PreconditionFailed(f"one of 'src-queue' and 'src-exchange' is required, {which}")
    end.key = reader.name("src-exchange-key")
    end.table = reader.table("src-queue-args")
    end.arguments = reader.encode("src-queue-args", end.table)
    end.consumer_arguments = reader.encoded("src-consumer-args")
    end.prefetch = reader.number("src-prefetch-count", PREFETCH, PREFETCH_MAX)
    end.predeclared = reader.flag("src-predeclared")
    after = reader.value("src-delete-after", "never")
    if after == "never":
        end.delete_after = NEVER
    elif after == "queue-length":
        end.delete_after = QUEUE_LENGTH
    else:
        if not isinstance(after, int) or isinstance(after, bool) or not 0 < after <= NUMBER_MAX:
            raise reader.refuse("src-delete-after", f"'never', 'queue-length' or 1 to {NUMBER_MAX}")
        end.delete_after = after
    return end


def _read_destination(reader: _Reader, vhost: str) -> DestinationEnd:
    protocol = reader.choice("dest-protocol", PROTOCOLS, AMQP091)
    end = DestinationEnd(reader.uris("dest-uri", vhost, protocol))
    end.queue = reader.name("dest-queue")
    if reader.value("dest-exchange", None) is not None:
        end.exchange = reader.name("dest-exchange")
    if reader.value("dest-exchange-key", None) is not None:
        end.key = reader.name("dest-exchange-key")
    if end.queue and end.exchange is not None:
        raise PreconditionFailed("'dest-queue' and 'dest-exchange' cannot be together")
    arguments = reader.table("dest-queue-args")
    if reader.value("ack-mode", ON_CONFIRM) == EXACTLY_ONCE:
        end.declares = True
        arguments = {DEDUP_PRODUCERS: ORIGINS_MAX, **arguments}
    end.arguments = reader.encode("dest-queue-args", arguments)
    end.predeclared = reader.flag("dest-predeclared")
    end.adds_headers = reader.flag("dest-add-forward-headers")
    end.adds_time = reader.flag("dest-add-timestamp-header")
    end.properties = _read_properties(reader)
    if end.queue:
        end.exchange, end.key = "", end.queue
    return end


def _read_properties(reader: _Reader) -> list[tuple[int, bytes]]:
    """Return the places and the encoded values of the properties that messages get."""
    field = "dest-publish-properties"
    values: list[tuple[int, bytes]] = []
    for name, value in reader.table(field).items():
        where = f"'{field}' has '{name}' = '{show(value)}'"
        if name == "headers":
            if not isinstance(value, Mapping):
                raise PreconditionFailed(f"{where}, which is not an object")
            values.append((p.HEADERS, reader.encode(f"{field}.headers", value)))
        elif name in p.TEXTS:
            if not isinstance(value, str):
                raise PreconditionFailed(f"{where}, which is not a string")
            check_length(f"'{name}' in '{field}'", value)
            values.append((p.TEXTS[name], short_string(value)))
        elif name in p.NUMBERS:
            place = p.NUMBERS[name]
            least, most = NUMBER_RANGES[name]
            if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
                raise PreconditionFailed(f"{where}, allowed: {least} to {most}")
            values.append((place, value.to_bytes(p.NUMBER_BYTES[place], "big")))
        else:
            known = ", ".join(sorted((*p.TEXTS, *p.NUMBERS, "headers")))
            raise PreconditionFailed(f"'{field}' has '{name}', which is not known, allowed: {known}")
    return values


def _check_together(definition: Definition) -> None:
    """Refuse fields that exclude each other. Raises PreconditionFailed."""
    if definition.ack_mode == NO_ACK and definition.source.delete_after != NEVER:
        raise PreconditionFailed(
            "'ack-mode' = 'no-ack' and 'src-delete-after' cannot be together: "
            "messages beyond the number would be lost"
        )
    if definition.paused and definition.source.delete_after != NEVER:
        raise PreconditionFailed(
            "'paused' and 'src-delete-after' cannot be together: a shovel that counts its messages cannot be "
            "resumed"
        )
    if definition.ack_mode == EXACTLY_ONCE:
        _check_exactly_once(definition.source, definition.destination)


def stages_here(definition: Definition) -> bool:
    """Whether the shovel stages a queue of this broker itself. Otherwise the broker of the source does so."""
    uri = definition.source.uris[0]
    return definition.ack_mode == EXACTLY_ONCE and uri.is_local and not uri.names_user


def _check_exactly_once(source: SourceEnd, destination: DestinationEnd) -> None:
    """Refuse ends that cannot remember the positions of messages. Raises PreconditionFailed."""
    mode = "'ack-mode' = 'exactly-once'"
    if not source.queue:
        raise PreconditionFailed(f"{mode} needs a 'src-queue', 'src-exchange' is '{source.exchange}'")
    if len(source.uris) > 1:
        shown = ", ".join(uri.shown for uri in source.uris)
        raise PreconditionFailed(f"{mode} needs a single 'src-uri', there are {len(source.uris)}: {shown}")
    if not destination.queue or destination.predeclared:
        raise PreconditionFailed(f"{mode} needs a 'dest-queue' without 'dest-predeclared'")
    if source.delete_after != NEVER:
        raise PreconditionFailed(f"{mode} and 'src-delete-after' cannot be together")
    if source.consumer_arguments != EMPTY_TABLE:
        raise PreconditionFailed(f"{mode} and 'src-consumer-args' cannot be together")
    if any(place == p.HEADERS for place, _ in destination.properties):
        raise PreconditionFailed(
            f"{mode} and 'headers' in 'dest-publish-properties' cannot be together: "
            "they would replace the headers with the position"
        )


@final
class _Reader:
    """The fields of a definition. Each method raises PreconditionFailed. `known`: the names read so far."""

    def __init__(self, fields: Fields) -> None:
        self.known: set[str] = set()
        self._fields = fields

    def value(self, name: str, default: object) -> object:
        """Return a field as it is."""
        self.known.add(name)
        return self._fields.get(name, default)

    def name(self, name: str) -> str:
        """Return a string of at most 255 bytes, "" if absent."""
        value = self.value(name, "")
        if not isinstance(value, str):
            raise self.refuse(name, "a string")
        check_length(f"'{name}'", value)
        return value

    def flag(self, name: str) -> bool:
        """Return a boolean, false if absent."""
        value = self.value(name, False)
        if not isinstance(value, bool):
            raise self.refuse(name, "true or false")
        return value

    def number(self, name: str, default: int, most: int) -> int:
        """Return a whole number from 0 to `most`."""
        value = self.value(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise self.refuse(name, f"a whole number from 0 to {most}")
        return value

    def choice(self, name: str, allowed: tuple[str, ...], default: str) -> str:
        """Return one of the allowed strings."""
        value = self.value(name, default)
        if not isinstance(value, str) or value not in allowed:
            raise self.refuse(name, ", ".join(allowed))
        return value

    def table(self, name: str) -> dict[str, object]:
        """Return an object; an empty list counts as an empty object. [RabbitMQ]"""
        value = self.value(name, {})
        if value == []:
            return {}
        if not isinstance(value, Mapping):
            raise self.refuse(name, "an object")
        return dict(value)

    def encoded(self, name: str) -> bytes:
        """Return an object as an encoded table."""
        return self.encode(name, self.table(name))

    def encode(self, name: str, table: Mapping[str, object]) -> bytes:
        """Return `table` encoded."""
        try:
            return encode_table(table)
        except (ValueError, RecursionError) as error:
            raise PreconditionFailed(f"'{name}' cannot be encoded: {error}") from error

    def uris(self, name: str, vhost: str, protocol: str) -> list[Uri]:
        """Return the addresses in a URI or a list of URIs."""
        value = self.value(name, None)
        if value is None and protocol == LOCAL:
            value = "amqp://"
        if value is None:
            raise PreconditionFailed(f"'{name}' is missing")
        texts = value if isinstance(value, list) else [value]
        if not texts:
            raise PreconditionFailed(f"'{name}' is an empty list, at least one URI is needed")
        found = [parse_uri(text, vhost, name) for text in texts]
        if protocol == LOCAL and not all(uri.is_local for uri in found):
            raise PreconditionFailed(
                f"'{name}' has a host, and protocol 'local' means this broker: 'amqp://'"
            )
        return found

    def refuse(self, name: str, allowed: str) -> PreconditionFailed:
        """Return the refusal of a field."""
        return PreconditionFailed(f"'{name}' is '{show(self._fields.get(name))}', allowed: {allowed}")


COMPONENTS: Final[dict[str, Callable[[str, str, object], object]]] = {SHOVEL: parse_definition}
"""The components of parameters that the forwarding runs, each with the check of a value.

The check takes virtual host, name and value, and raises PreconditionFailed.
"""


def shown_value(value: object) -> object:
    """Return the value of a parameter with its URIs as users may see them: without log-ins."""
    if not isinstance(value, Mapping):
        return value
    return {name: _shown_uris(each) if name in URI_FIELDS else each for name, each in value.items()}


URI_FIELDS: Final = ("src-uri", "dest-uri", "uri")


def _shown_uris(value: object) -> object:
    if isinstance(value, list):
        return [_shown_uris(each) for each in value]
    return show_uri(value) if isinstance(value, str) else NOT_A_URI
