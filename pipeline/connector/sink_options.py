"""What can be said of a sink."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final

from pyspark.sql.types import BinaryType, MapType, StringType, StructField, StructType

from pipeline.connector.choices import Choices, OptionError
from pipeline.connector.schema import PROPERTIES
from pipeline.connector.server import Server, server_of

AT_LEAST_ONCE: Final = "at-least-once"
EXACTLY_ONCE: Final = "exactly-once"
TRANSIENT: Final = 1
PERSISTENT: Final = 2


@dataclass(frozen=True)
class SinkOptions:
    """`exchange`, `routing_key`: None where a column says them. `confirm_timeout`: seconds.

    `in_flight`: messages that are not confirmed yet, at most. `name`: of the staged sink that makes it
    exactly once, None: at least once.
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
    """Read the options, and hold the columns to them. Raises OptionError."""
    if overwrite:
        raise OptionError("mode 'overwrite' cannot be: what is in a queue stays; say mode('append')")
    choices = Choices(given)
    server = server_of(choices)
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
    """The columns of a table that is written to: those that the options leave to the rows.

    They are NOT NULL, see `pipeline/connector/tables.py`.
    """
    choices = Choices(given)
    names = ["value"]
    if choices.text("routingKey") is None:  # with it alone: a queue by its name, by the default exchange
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
                f"column '{field.name}' means nothing to a sink; it takes value, exchange, routing_key, "
                "properties and headers"
            )
        elif not isinstance(kind, StringType):
            raise OptionError(f"column '{field.name}' is {kind.simpleString()}; it is a string")
    if "value" not in schema.names:
        raise OptionError("column 'value' is missing: the body of each message")
    if key is None and "routing_key" not in schema.names:
        raise OptionError("option 'routingKey' or a column 'routing_key' is wanted")
