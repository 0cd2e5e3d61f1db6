"""The definition of a shovel: RabbitMQ's fields, checked and typed. [RabbitMQ dynamic shovels]"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, final

from broker.core.arguments.consumer import SELECTOR
from broker.core.arguments.rule import MILLISECONDS_MAX
from broker.core.cron import Cron, Windows
from broker.core.errors import PreconditionFailed
from broker.core.names import check_length
from broker.core.selector.selector import Selector
from broker.core.values import show
from broker.forwarding.uri import AMQP091, AMQP10, NOT_A_URI, Uri, parse_uri, show_uri
from protocol.amqp091 import properties as p
from protocol.amqp091.methods import short_string
from protocol.amqp091.table import EMPTY_TABLE, encode_table
from protocol.amqp10 import properties as places
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Symbol, Timestamp, Uint

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

LOCAL: Final = "local"
PROTOCOLS: Final = (AMQP091, AMQP10, LOCAL)

PLACES10: Final = {name: place for place, name in enumerate(places.NAMES)}
"""The properties in `dest-properties`, and their places."""

ADDRESS_BYTES_MAX: Final = 4096
NEVER: Final = -1
QUEUE_LENGTH: Final = -2
PREFETCH: Final = 1000
RECONNECT_DELAY: Final = 5  # seconds
NUMBER_MAX: Final = 2**31 - 1
PREFETCH_MAX: Final = 65535
RATE_MAX: Final = 1_000_000  # messages in a second
WINDOW_MAX: Final = 31 * 86_400  # seconds

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
    `address`: of a node of AMQP 1.0, instead of a queue or exchange. `selector`: only messages that match are
    taken; None: all.
    """

    def __init__(self, uris: list[Uri], protocol: str) -> None:
        self.uris = uris
        self.protocol = protocol
        self.address = ""
        self.queue = ""
        self.exchange = ""
        self.key = ""
        self.table: dict[str, object] = {}
        self.arguments = EMPTY_TABLE
        self.consumer_arguments = EMPTY_TABLE
        self.selector: Selector | None = None
        self.has_arguments = False  # the definition names arguments of the consumer
        self.selector_text = ""
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
    `exactly-once`. `receipt_queue`: the queue there for the receipts of forwarded messages, which return from
    the queue to the source; "": none. `returns_receipts`: messages are such receipts on their way back.

    Of AMQP 1.0: `address` is the node, `fields` the places and encoded values of properties that are set,
    `application` and `annotations` the names and encoded values that are added.
    """

    def __init__(self, uris: list[Uri], protocol: str) -> None:
        self.uris = uris
        self.protocol = protocol
        self.address = ""
        self.fields: list[tuple[int, bytes]] = []
        self.application: dict[bytes, bytes] = {}
        self.annotations: dict[bytes, bytes] = {}
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
        self.receipt_queue = ""
        self.returns_receipts = False


@final
class Definition:
    """The definition of the shovel `name` in the virtual host `vhost`.

    `reconnect_delay`: seconds after a failure; 0: no other attempt. `paused`: the shovel does not run.
    `rate`: messages in a second at most; 0: no limit. `batch_size`: the number of messages that are sent
    together; 0: no number. `batch_interval`: the longest time in milliseconds that a message waits for its
    batch; 0: no limit. `windows`: the times in which the shovel runs; None: always.
    `title`: the shovel in texts for people, without its virtual host. `client_name`: the shovel as other
    brokers see it.
    """

    def __init__(self, vhost: str, name: str, source: SourceEnd, destination: DestinationEnd) -> None:
        self.vhost = vhost
        self.name = name
        self.source = source
        self.destination = destination
        self.ack_mode = ON_CONFIRM
        self.reconnect_delay = RECONNECT_DELAY
        self.paused = False
        self.rate = 0
        self.title = f"shovel '{name}'"
        self.client_name = f"Shovel {name}"
        self.batch_size = 0
        self.batch_interval = 0
        self.windows: Windows | None = None

    @property
    def where(self) -> str:
        """The shovel in texts for people."""
        return f"{self.title} in vhost '{self.vhost}'"


def parse_definition(vhost: str, name: str, value: object) -> Definition:
    """Return the definition in the value of a parameter.

    Raises PreconditionFailed, which names the field and its value. No text has the password of a URI.
    """
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the value of shovel '{name}' is not an object")
    fields = _renamed(value)
    reader = FieldReader(fields)
    definition = Definition(vhost, name, _read_source(reader, vhost), _read_destination(reader, vhost))
    definition.ack_mode = reader.choice("ack-mode", ACK_MODES, ON_CONFIRM)
    definition.reconnect_delay = reader.number("reconnect-delay", RECONNECT_DELAY, NUMBER_MAX)
    definition.paused = reader.flag(PAUSED)
    definition.rate = reader.number("rate", 0, RATE_MAX)
    if definition.rate:  # as many messages may be on their way when the rate is reached
        prefetch = definition.source.prefetch or definition.rate
        definition.source.prefetch = min(prefetch, definition.rate, PREFETCH_MAX)
    _read_bulk(reader, definition)
    reader.refuse_others()
    _check_together(definition)
    return definition


def _read_bulk(reader: FieldReader, definition: Definition) -> None:
    """Read the batches and the windows. The prefetch count gets room for a batch.

    Raises PreconditionFailed.
    """
    source = definition.source
    # A client of AMQP 1.0 gives new credit when half of the prefetch count is free.
    share = 2 if source.protocol == AMQP10 else 1
    size = definition.batch_size = reader.number("batch-size", 0, PREFETCH_MAX // share)
    definition.batch_interval = reader.number("batch-interval", 0, MILLISECONDS_MAX)
    if definition.ack_mode == NO_ACK and (size or definition.batch_interval):
        raise PreconditionFailed(
            "'batch-size' and 'batch-interval' need acknowledgements: with 'ack-mode' = 'no-ack' "
            "a shovel that ends would lose its batch"
        )
    if reader.value("src-prefetch-count", None) is not None and 0 < source.prefetch < size * share:
        raise PreconditionFailed(
            f"'batch-size' is {size}, and needs at least {size * share} messages on their way, the source "
            f"has at most {source.prefetch} ('src-prefetch-count', 'rate')"
        )
    if size and (source.prefetch or definition.ack_mode == EXACTLY_ONCE):
        source.prefetch = max(source.prefetch or PREFETCH, size * share)
    if reader.value("window", None) is not None:
        definition.windows = _read_windows(reader)


def _read_windows(reader: FieldReader) -> Windows:
    """Return the windows of a shovel. Raises PreconditionFailed."""
    table = reader.table("window")
    for key in table:
        if key not in ("cron", "duration"):
            raise PreconditionFailed(f"'window' has '{key}', which is not known, allowed: cron, duration")
    cron, seconds = table.get("cron"), table.get("duration")
    if not isinstance(seconds, int) or isinstance(seconds, bool) or not 0 < seconds <= WINDOW_MAX:
        raise PreconditionFailed(
            f"'window' has 'duration' = '{show(seconds)}', allowed: 1 to {WINDOW_MAX} seconds"
        )
    try:
        return Windows(Cron(cron), seconds * 1000)
    except ValueError as error:
        raise PreconditionFailed(f"'window' has 'cron' = '{show(cron)}': {error}") from error


def _renamed(value: Mapping[str, object]) -> dict[str, object]:
    """Return the fields under their present names. Raises PreconditionFailed for a field with both names."""
    fields = dict(value)
    for old, new in OLD_NAMES.items():
        if old in fields:
            if new in fields:
                raise PreconditionFailed(f"'{old}' and '{new}' are the same field, and both are present")
            fields[new] = fields.pop(old)
    return {name: each for name, each in fields.items() if each is not None}


def _read_source(reader: FieldReader, vhost: str) -> SourceEnd:
    protocol = reader.choice("src-protocol", PROTOCOLS, AMQP091)
    end = SourceEnd(reader.uris("src-uri", vhost, protocol), protocol)
    if protocol == AMQP10:
        end.address = reader.address("src-address")
        end.prefetch = reader.number("src-prefetch-count", PREFETCH, PREFETCH_MAX, 1)
        end.delete_after = _read_delete_after(reader, ())
        _read_selector(reader, end)
        return end
    end.queue = reader.name("src-queue")
    end.exchange = reader.name("src-exchange")
    if bool(end.queue) == bool(end.exchange):
        which = "both are present" if end.queue else "both are missing"
        raise PreconditionFailed(f"one of 'src-queue' and 'src-exchange' is required, {which}")
    end.key = reader.name("src-exchange-key")
    end.table = reader.table("src-queue-args")
    end.arguments = reader.encode("src-queue-args", end.table)
    _read_consumer(reader, end)
    end.prefetch = reader.number("src-prefetch-count", PREFETCH, PREFETCH_MAX)
    end.predeclared = reader.flag("src-predeclared")
    end.delete_after = _read_delete_after(reader, ("queue-length",))
    return end


def _read_consumer(reader: FieldReader, end: SourceEnd) -> None:
    """Read the arguments of the consumer, and the selector of the source, which they get."""
    arguments = reader.table("src-consumer-args")
    _read_selector(reader, end)
    if end.selector is not None:
        if end.exchange:
            raise PreconditionFailed(
                f"'src-selector' needs a 'src-queue', 'src-exchange' is '{end.exchange}': its binding selects"
            )
        if SELECTOR in arguments:
            raise PreconditionFailed(
                f"'src-selector' and '{SELECTOR}' in 'src-consumer-args' cannot be together"
            )
    selects = {SELECTOR: end.selector_text} if end.selector is not None else {}
    end.consumer_arguments = reader.encode("src-consumer-args", {**arguments, **selects})
    end.has_arguments = bool(arguments)


def _read_selector(reader: FieldReader, end: SourceEnd) -> None:
    """Read the selector of the source."""
    text = reader.value("src-selector", "")
    if not isinstance(text, str):
        raise reader.refuse("src-selector", "a selector")
    if text.strip():
        try:
            end.selector = Selector(text)
        except PreconditionFailed as error:
            raise PreconditionFailed(f"'src-selector' is not a selector: {error.text}") from error
        end.selector_text = text


def _read_delete_after(reader: FieldReader, words: tuple[str, ...]) -> int:
    """Return the number of messages after which the shovel is deleted, NEVER or, in `words`, QUEUE_LENGTH."""
    after = reader.value("src-delete-after", "never")
    if after == "never":
        return NEVER
    if after == "queue-length" and after in words:
        return QUEUE_LENGTH
    if not isinstance(after, int) or isinstance(after, bool) or not 0 < after <= NUMBER_MAX:
        allowed = "".join(f"'{word}', " for word in ("never", *words)).removesuffix(", ")
        raise reader.refuse("src-delete-after", f"{allowed} or 1 to {NUMBER_MAX}")
    return after


def _read_destination(reader: FieldReader, vhost: str) -> DestinationEnd:
    protocol = reader.choice("dest-protocol", PROTOCOLS, AMQP091)
    end = DestinationEnd(reader.uris("dest-uri", vhost, protocol), protocol)
    end.adds_headers = reader.flag("dest-add-forward-headers")
    end.adds_time = reader.flag("dest-add-timestamp-header")
    if protocol == AMQP10:
        _read_destination10(reader, end)
        return end
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
    end.properties = _read_properties(reader)
    end.receipt_queue = reader.name("dest-receipt-queue")
    if end.queue:
        end.exchange, end.key = "", end.queue
    return end


def _read_destination10(reader: FieldReader, end: DestinationEnd) -> None:
    """Read the fields of a destination of AMQP 1.0. [RabbitMQ rabbit_amqp10_shovel]"""
    end.address = reader.address("dest-address")
    end.application = reader.map10("dest-application-properties")
    end.annotations = reader.map10("dest-message-annotations")
    for key in end.annotations:
        if not key.isascii():
            raise PreconditionFailed(f"'dest-message-annotations' has '{key.decode()}', which is not ASCII")
    field = "dest-properties"
    for name, given in reader.table(field).items():
        place = PLACES10.get(name.replace("_", "-"))
        if place is None:
            known = ", ".join(sorted(PLACES10))
            raise PreconditionFailed(f"'{field}' has '{name}', which is not known, allowed: {known}")
        end.fields.append((place, _property10(field, name, place, given)))


def _property10(field: str, name: str, place: int, value: object) -> bytes:
    """Return a property of AMQP 1.0, encoded. Raises PreconditionFailed. [amqp-1.0 3.2.4]"""
    where = f"'{field}' has '{name}' = '{show(value)}'"
    if place in (places.ABSOLUTE_EXPIRY_TIME, places.CREATION_TIME, places.GROUP_SEQUENCE):
        most = 2**32 - 1 if place == places.GROUP_SEQUENCE else 2**63 - 1
        if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
            raise PreconditionFailed(f"{where}, allowed: 0 to {most}")
        return encode(Uint(value) if place == places.GROUP_SEQUENCE else Timestamp(value))
    if not isinstance(value, str):
        raise PreconditionFailed(f"{where}, which is not a string")
    if place == places.USER_ID:
        return encode(value.encode())
    if place in (places.CONTENT_TYPE, places.CONTENT_ENCODING):
        if not value.isascii():
            raise PreconditionFailed(f"{where}, which is not ASCII")
        return encode(Symbol(value))
    return encode(value)


def _read_properties(reader: FieldReader) -> list[tuple[int, bytes]]:
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
    if definition.source.selector is not None and definition.source.delete_after == QUEUE_LENGTH:
        raise PreconditionFailed(
            "'src-selector' and 'src-delete-after' = 'queue-length' cannot be together: "
            "the length counts messages that are not selected"
        )
    if definition.paused and definition.source.delete_after != NEVER:
        raise PreconditionFailed(
            "'paused' and 'src-delete-after' cannot be together: a shovel that counts its messages cannot be "
            "resumed"
        )
    if definition.destination.receipt_queue:
        _check_receipts(definition.source, definition.destination)
    if definition.ack_mode == EXACTLY_ONCE:
        _check_exactly_once(definition.source, definition.destination)


def _check_receipts(source: SourceEnd, destination: DestinationEnd) -> None:
    """Refuse ends between which receipts find no way back. Raises PreconditionFailed."""
    field = "'dest-receipt-queue'"
    if source.protocol == AMQP10:
        raise PreconditionFailed(f"{field} needs ends of AMQP 0-9-1, 'src-protocol' is '{AMQP10}'")
    for name, uris in (("src-uri", source.uris), ("dest-uri", destination.uris)):
        if len(uris) > 1:
            shown = ", ".join(uri.shown for uri in uris)
            raise PreconditionFailed(f"{field} needs a single '{name}', there are {len(uris)}: {shown}")
    if source.delete_after != NEVER:
        raise PreconditionFailed(
            f"{field} and 'src-delete-after' cannot be together: receipts may follow after the last message"
        )
    if destination.receipt_queue == destination.queue:
        raise PreconditionFailed(f"{field} and 'dest-queue' are both '{destination.queue}'")
    if any(place == p.HEADERS for place, _ in destination.properties):
        raise PreconditionFailed(
            f"{field} and 'headers' in 'dest-publish-properties' cannot be together: "
            "they would replace the headers that ask for receipts"
        )


def receipt_definition(definition: Definition) -> Definition:
    """Return the definition of the way back of receipts, from the destination of a shovel to its source."""
    there, here = definition.destination, definition.source
    source = SourceEnd(there.uris, AMQP091)
    source.queue = there.receipt_queue
    destination = DestinationEnd(here.uris, AMQP091)
    destination.exchange = destination.key = ""
    destination.returns_receipts = True
    back = Definition(definition.vhost, definition.name, source, destination)
    back.title = f"return of receipts of {definition.title}"
    back.client_name = f"{definition.client_name} receipts"
    back.reconnect_delay = definition.reconnect_delay or RECONNECT_DELAY
    return back


def stages_here(definition: Definition) -> bool:
    """Whether the shovel stages a queue of this broker itself. Otherwise the broker of the source does so."""
    uri = definition.source.uris[0]
    return definition.ack_mode == EXACTLY_ONCE and uri.is_local and not uri.names_user


def _check_exactly_once(source: SourceEnd, destination: DestinationEnd) -> None:
    """Refuse ends that cannot remember the positions of messages. Raises PreconditionFailed."""
    mode = "'ack-mode' = 'exactly-once'"
    for field, protocol in (("src-protocol", source.protocol), ("dest-protocol", destination.protocol)):
        if protocol == AMQP10:
            raise PreconditionFailed(f"{mode} needs ends of AMQP 0-9-1, '{field}' is '{AMQP10}'")
    if not source.queue:
        raise PreconditionFailed(f"{mode} needs a 'src-queue', 'src-exchange' is '{source.exchange}'")
    if len(source.uris) > 1:
        shown = ", ".join(uri.shown for uri in source.uris)
        raise PreconditionFailed(f"{mode} needs a single 'src-uri', there are {len(source.uris)}: {shown}")
    if not destination.queue or destination.predeclared:
        raise PreconditionFailed(f"{mode} needs a 'dest-queue' without 'dest-predeclared'")
    if source.delete_after != NEVER:
        raise PreconditionFailed(f"{mode} and 'src-delete-after' cannot be together")
    if source.has_arguments:
        raise PreconditionFailed(f"{mode} and 'src-consumer-args' cannot be together")
    if any(place == p.HEADERS for place, _ in destination.properties):
        raise PreconditionFailed(
            f"{mode} and 'headers' in 'dest-publish-properties' cannot be together: "
            "they would replace the headers with the position"
        )


@final
class FieldReader:
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

    def address(self, name: str) -> str:
        """Return the address of a node, a string that is required."""
        value = self.value(name, None)
        if value is None:
            raise PreconditionFailed(f"'{name}' is missing")
        if not isinstance(value, str) or not 0 < len(value.encode()) <= ADDRESS_BYTES_MAX:
            raise self.refuse(name, f"an address of 1 to {ADDRESS_BYTES_MAX} bytes")
        return value

    def map10(self, name: str) -> dict[bytes, bytes]:
        """Return an object as names and encoded values of AMQP 1.0."""
        encoded: dict[bytes, bytes] = {}
        for key, value in self.table(name).items():
            if not isinstance(value, str | int | float):
                raise PreconditionFailed(
                    f"'{name}' has '{key}' = '{show(value)}', allowed: a string, a number, true or false"
                )
            try:
                encoded[key.encode()] = encode(value)
            except (ValueError, OverflowError) as error:
                raise PreconditionFailed(f"'{name}' has '{key}', which cannot be encoded: {error}") from error
        return encoded

    def number(self, name: str, default: int, most: int, least: int = 0) -> int:
        """Return a whole number from `least` to `most`."""
        value = self.value(name, default)
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if not isinstance(value, int) or isinstance(value, bool) or not least <= value <= most:
            raise self.refuse(name, f"a whole number from {least} to {most}")
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
        spoken = AMQP10 if protocol == AMQP10 else AMQP091
        found = [parse_uri(text, vhost, name, spoken) for text in texts]
        if protocol == LOCAL and not all(uri.is_local for uri in found):
            raise PreconditionFailed(
                f"'{name}' has a host, and protocol 'local' means this broker: 'amqp://'"
            )
        return found

    def refuse_others(self) -> None:
        """Refuse a field that has not been read."""
        for field in self._fields:
            if field not in self.known:
                raise PreconditionFailed(f"'{field}' is not known, allowed: {', '.join(sorted(self.known))}")

    def refuse(self, name: str, allowed: str) -> PreconditionFailed:
        """Return the refusal of a field."""
        return PreconditionFailed(f"'{name}' is '{show(self._fields.get(name))}', allowed: {allowed}")


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
