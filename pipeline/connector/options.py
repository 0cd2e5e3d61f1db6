"""The options of a source and of a sink, with Kafka's names where Kafka has the option."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from pipeline.connector.choices import Choices, OptionError
from pipeline.connector.offsets import EARLIEST, LATEST, Place
from pipeline.connector.schema import PROPERTIES
from pipeline.connector.server import Server, make_server

CHUNK: Final = "chunk"
AMQP: Final = "amqp"
BODY_FORMATS: Final = ("binary", "string", "json")
INFER: Final = "infer"
SUBSCRIPTIONS: Final = frozenset(("subscribe", "subscribepattern", "assign"))
"""The options, in lower case, of which a source has one and a sink none."""
_PLACES: Final = 'JSON such as {"orders": {"0": 23, "1": -2}}'

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
TRANSIENT: Final = 1
PERSISTENT: Final = 2


class Bound(NamedTuple):
    """The begin or the end of reading. `offset`: EARLIEST or LATEST, for partitions without an offset.

    `offsets`: of single partitions. `time`: of all partitions, `times`: of single ones, in microseconds since
    1970.
    """

    offset: int
    offsets: Mapping[Place, int]
    time: int | None = None
    times: Mapping[Place, int] | None = None

    @property
    def by_time(self) -> bool:
        """Whether times are given."""
        return self.time is not None or self.times is not None

    @property
    def asked(self) -> Mapping[Place, int]:
        """The offsets that apply: times take precedence over offsets."""
        return {} if self.by_time else self.offsets


class Limits(NamedTuple):
    """The limits of a batch: `rows`, and `size` in bytes; None: no limit.

    A batch waits for `least_rows`, but not longer than `delay` seconds.
    """

    rows: int | None
    size: int | None
    least_rows: int | None
    delay: float


@dataclass(frozen=True)
class SourceOptions:
    """All options of a source. Exactly one of `names`, `pattern` and `assigned` is given."""

    server: Server
    names: tuple[str, ...]
    pattern: str | None
    assigned: tuple[Place, ...]
    starting: Bound
    latest_if_none: bool
    ending: Bound
    limits: Limits
    least_parts: int | None
    part_rows: int | None
    fail_on_loss: bool
    headers: bool
    properties: bool
    body_format: str
    body_schema: str | None
    sample_rows: int
    reader: str | None
    retain: int
    transport: str
    fetch_bytes: int
    poll: float
    pushdown: bool


def source_options(given: Mapping[str, str], streaming: bool) -> SourceOptions:
    """Read the options. `streaming`: other defaults apply. Raises OptionError."""
    choices = Choices(given)
    server = make_server(choices)
    names, pattern, assigned = _subscription(choices)
    body_format = choices.one_of("bodyFormat", BODY_FORMATS, "binary")
    body_schema = choices.text("bodySchema")
    if (body_schema is not None) != (body_format == "json"):
        raise OptionError("options 'bodyFormat' json and 'bodySchema' go together: a schema as DDL, or infer")
    if streaming and body_schema == INFER:
        raise OptionError("option 'bodySchema' is 'infer', which is for batches: a stream needs the schema")
    if streaming and choices.flag("pushdown", False):
        raise OptionError(
            "option 'pushdown' is 'true', which is for batches: Spark passes no filters to a stream"
        )
    for name in ("endingOffsets", "endingTimestamp", "endingOffsetsByTimestamp"):
        if streaming and choices.text(name) is not None:
            raise OptionError(f"option '{name}' is for batches: a stream has no end")
    strategies = ("error", "latest")
    options = SourceOptions(
        server=server,
        names=names,
        pattern=pattern,
        assigned=assigned,
        starting=_bound(choices, "starting", LATEST if streaming else EARLIEST),
        latest_if_none=choices.one_of("startingOffsetsByTimestampStrategy", strategies, "error") == "latest",
        ending=_bound(choices, "ending", LATEST),
        limits=Limits(
            choices.count("maxMessagesPerTrigger", "maxOffsetsPerTrigger"),
            choices.count("maxBytesPerTrigger"),
            choices.count("minMessagesPerTrigger", "minOffsetsPerTrigger"),
            choices.seconds("maxTriggerDelay", 900.0),
        ),
        least_parts=choices.count("minPartitions"),
        part_rows=choices.count("maxMessagesPerPartition", "maxRecordsPerPartition"),
        fail_on_loss=choices.flag("failOnDataLoss", True),
        headers=choices.flag("includeHeaders", False),
        properties=choices.flag("includeProperties", False),
        body_format=body_format,
        body_schema=body_schema,
        sample_rows=choices.number("inferSampleSize", 1000),
        reader=choices.text("readerName"),
        retain=choices.number("retainBatches", 0, least=0),
        transport=choices.one_of("transport", (CHUNK, AMQP), CHUNK),
        fetch_bytes=choices.number("fetchBytes", 2**20, least=65536),
        poll=choices.number("pollIntervalMs", 100) / 1000,
        pushdown=choices.flag("pushdown", False),
    )
    choices.refuse_others(("path",))
    return options


def _subscription(choices: Choices) -> tuple[tuple[str, ...], str | None, tuple[Place, ...]]:
    names, pattern = choices.text("subscribe"), choices.text("subscribePattern")
    assign = choices.text("assign")
    if [names, pattern, assign].count(None) != 2:
        raise OptionError("one of the options 'subscribe', 'subscribePattern' and 'assign' is required")
    if names is not None:
        names_found = tuple(dict.fromkeys(each.strip() for each in names.split(",") if each.strip()))
        if not names_found:
            raise OptionError(f"option 'subscribe' is '{names}'; it names streams or queues")
        return names_found, None, ()
    if pattern is not None:
        try:
            re.compile(pattern)
        except re.error as error:
            raise OptionError(f"option 'subscribePattern' is '{pattern}': {error}") from error
        return (), pattern, ()
    assert assign is not None, "one of three"
    places: list[Place] = []
    for queue, numbers in _json("assign", assign, 'JSON such as {"orders": [0, 2]}').items():
        if not isinstance(numbers, list) or not all(type(each) is int for each in numbers):
            raise OptionError(
                f"option 'assign' has {numbers!r} for '{queue}', which is no list of partitions"
            )
        places += [Place(queue, each) for each in numbers]
    if not places:
        raise OptionError(f"option 'assign' is '{assign}'; it names partitions")
    return (), None, tuple(places)


def _bound(choices: Choices, which: str, default: int) -> Bound:
    """Read `startingOffsets` or `endingOffsets`, and times, which take precedence. [Kafka's rule]"""
    words = {"earliest": EARLIEST, "latest": LATEST}
    if which == "ending":
        del words["earliest"]
    value = choices.text(f"{which}Offsets")
    bound = Bound(default, {})
    if value is not None and value.lower() in words:
        bound = Bound(words[value.lower()], {})
    elif value is not None:
        expected = f"{' or '.join(words)}, or {_PLACES}"
        bound = Bound(default, _by_place(f"{which}Offsets", value, expected, EARLIEST))
    time = choices.count(f"{which}Timestamp", least=0)
    times = choices.text(f"{which}OffsetsByTimestamp")
    if time is not None:
        return bound._replace(time=time * 1000)
    if times is not None:
        by_place = _by_place(f"{which}OffsetsByTimestamp", times, _PLACES, 0)
        return bound._replace(times={place: each * 1000 for place, each in by_place.items()})
    return bound


def _by_place(name: str, value: str, expected: str, least: int) -> dict[Place, int]:
    offsets: dict[Place, int] = {}
    for queue, numbers in _json(name, value, expected).items():
        if not isinstance(numbers, dict):
            raise OptionError(f"option '{name}' has {numbers!r} for '{queue}'; it is {expected}")
        for number, each in numbers.items():
            if not str(number).isdecimal() or type(each) is not int or each < least:
                raise OptionError(f"option '{name}' has {number!r}: {each!r} for '{queue}'; it is {expected}")
            offsets[Place(queue, int(number))] = each
    return offsets


def _json(name: str, value: str, expected: str) -> dict[str, object]:
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        document = None
    if not isinstance(document, dict):
        raise OptionError(f"option '{name}' is '{value}'; it is {expected}")
    return document


@dataclass(frozen=True)
class SinkOptions:
    """The options of a sink. `exchange`, `routing_key`: None if a column has them.

    `confirm_timeout`: seconds. `in_flight`: limit of unconfirmed messages. `name`: of the staged sink for
    exactly once; None: at least once.
    """

    server: Server
    exchange: str | None
    routing_key: str | None
    mandatory: bool
    in_flight: int
    confirm_timeout: float
    delivery_mode: int
    content_type: str | None
    name: str | None


def sink_options(
    given: Mapping[str, str], schema: StructType, overwrite: bool, streaming: bool
) -> SinkOptions:
    """Read the options, and check the columns against them. Raises OptionError."""
    if overwrite:
        raise OptionError(
            "mode 'overwrite' is not possible: messages stay in their queue; use mode('append')"
        )
    choices = Choices(given)
    server = make_server(choices)
    exchange, key = choices.text("exchange"), choices.text("routingKey")
    mode = choices.number("deliveryMode", PERSISTENT)
    if mode not in (TRANSIENT, PERSISTENT):
        raise OptionError(f"option 'deliveryMode' is '{mode}'; it is 1, transient, or 2, persistent")
    name = choices.text("sinkName")
    guarantee = choices.one_of("guarantee", (AT_LEAST_ONCE, EXACTLY_ONCE), AT_LEAST_ONCE)
    if guarantee == EXACTLY_ONCE and not streaming:
        raise OptionError("option 'guarantee' is 'exactly-once', which is for streaming queries")
    if (guarantee == EXACTLY_ONCE) != (name is not None):
        raise OptionError("options 'guarantee' exactly-once and 'sinkName' go together")
    _check_columns(schema, key)
    options = SinkOptions(
        server=server,
        exchange=exchange if exchange is not None or "exchange" in schema.names else "",
        routing_key=key,
        mandatory=choices.flag("mandatory", True),
        in_flight=choices.number("maxInFlight", 2000),
        confirm_timeout=choices.number("confirmTimeoutMs", 30_000) / 1000,
        delivery_mode=mode,
        content_type=choices.text("contentType"),
        name=name,
    )
    choices.refuse_others(("path", "checkpointLocation", "queryName"))
    return options


def sink_columns(given: Mapping[str, str]) -> StructType:
    """Return the columns of a table that is written to: the values that the options leave to the rows.

    The columns are NOT NULL, see `pipeline/connector/tables.py`.
    """
    choices = Choices(given)
    names = ["value"]
    if choices.text("routingKey") is None:  # `routingKey` alone names a queue
        names += ["routing_key"] if choices.text("exchange") is not None else ["exchange", "routing_key"]
    kinds = {"value": BinaryType()}
    return StructType([StructField(name, kinds.get(name, StringType()), nullable=False) for name in names])


def _check_columns(schema: StructType, key: str | None) -> None:
    text = (StringType, BinaryType)
    for field in schema.fields:
        kind = field.dataType
        if field.name == "properties":
            known = PROPERTIES.names
            if not isinstance(kind, StructType) or (unknown := [n for n in kind.names if n not in known]):
                wrong = f"has '{unknown[0]}'" if isinstance(kind, StructType) else f"is {kind.simpleString()}"
                raise OptionError(
                    f"column 'properties' {wrong}; it is a struct of some of {', '.join(known)}"
                )
        elif field.name == "headers":
            if not isinstance(kind, MapType) or not isinstance(kind.keyType, StringType):
                raise OptionError(f"column 'headers' is {kind.simpleString()}; it is a map of strings")
            if not isinstance(kind.valueType, StringType):
                raise OptionError(f"column 'headers' is {kind.simpleString()}; its values are strings")
        elif field.name == "value":
            if not isinstance(kind, text):
                raise OptionError(f"column 'value' is {kind.simpleString()}; it is binary or string")
        elif field.name not in ("exchange", "routing_key"):
            raise OptionError(
                f"column '{field.name}' is unknown to a sink; its columns are value, exchange, routing_key, "
                "properties and headers"
            )
        elif not isinstance(kind, StringType):
            raise OptionError(f"column '{field.name}' is {kind.simpleString()}; it is a string")
    if "value" not in schema.names:
        raise OptionError("column 'value' is missing: the body of each message")
    if key is None and "routing_key" not in schema.names:
        raise OptionError("option 'routingKey' or a column 'routing_key' is required")
