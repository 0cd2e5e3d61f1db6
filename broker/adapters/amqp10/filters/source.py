"""The filters of a source: the messages that its link gets. [amqp-1.0 messaging 3.5.3, 3.5.8; filtex-v1.0]"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from typing import Final, NamedTuple, final

from broker.adapters.amqp10.filters.properties import ApplicationPropertiesFilter, PropertiesFilter
from broker.adapters.amqp10.filters.sql import SqlFilter
from broker.adapters.amqp10.link_arguments import FILTERS as LINK_FILTERS
from broker.adapters.formats.amqp10 import NOTHING, simple_value
from broker.adapters.formats.either import SelectorFilter
from broker.core.errors import PreconditionFailed
from broker.core.message_view import Criterion, MessageView
from broker.core.names import is_short
from broker.core.ports import MessageStore
from broker.core.selector.selector import Selector
from protocol.amqp10.conditions import INVALID_FIELD, PeerError
from protocol.amqp10.types import Char, Described, Map, Timestamp

SELECTOR_CAPABILITY: Final = "APACHE.ORG:SELECTOR"
SQL_CAPABILITY: Final = "AMQP_FILTEX_SQL_V1_0"
PROPERTIES_CAPABILITY: Final = "AMQP_FILTEX_PROP_V1_0"
CAPABILITIES: Final = (SELECTOR_CAPABILITY, SQL_CAPABILITY, PROPERTIES_CAPABILITY)
"""The capabilities of a source."""

CRITERIA_MAX: Final = 4  # conditions of a source, because each is checked for each message
HEADERS_MAX: Final = 256  # arguments of a binding
TEXT_MAX: Final = 300  # characters of an error text with parts of the peer's filter

DIRECT: Final = "direct"
TOPIC: Final = "topic"
HEADERS: Final = "headers"

_SELECTOR: Final = "selector"
_SQL: Final = "sql"
_PROPERTIES: Final = "properties"
_APPLICATION_PROPERTIES: Final = "application-properties"
_NO_LOCAL: Final = "no-local"
_STREAM: Final = "stream"
_LINK: Final = "link"  # an argument of consumers
_KINDS: Final[dict[int | str, str]] = {
    0x0000468C00000000: DIRECT,
    "apache.org:legacy-amqp-direct-binding:string": DIRECT,
    0x0000468C00000001: TOPIC,
    "apache.org:legacy-amqp-topic-binding:string": TOPIC,
    0x0000468C00000002: HEADERS,
    "apache.org:legacy-amqp-headers-binding:map": HEADERS,
    0x0000468C00000003: _NO_LOCAL,
    "apache.org:no-local-filter:list": _NO_LOCAL,
    0x0000468C00000004: _SELECTOR,
    "apache.org:selector-filter:string": _SELECTOR,
    0x120: _SQL,
    "amqp:sql-filter": _SQL,
    0x173: _PROPERTIES,
    "amqp:properties-filter": _PROPERTIES,
    0x174: _APPLICATION_PROPERTIES,
    "amqp:application-properties-filter": _APPLICATION_PROPERTIES,
    "rabbitmq:stream-offset-spec": _STREAM,
    "rabbitmq:stream-filter": _STREAM,
    "rabbitmq:stream-match-unfiltered": _STREAM,
    "amqpd:stream-consumer-name": _STREAM,
    "amqpd:stream-partition": _STREAM,
}
"""The kinds of known filters, by their descriptors."""


class Binding(NamedTuple):
    """The binding of a link's queue to the exchange that is its source.

    `kind`: DIRECT, TOPIC or HEADERS. `key` is the routing key, "" for HEADERS. `arguments` are the arguments
    of the binding, with values as headers have them; empty for DIRECT and TOPIC.
    """

    kind: str
    key: str
    arguments: dict[str, object]


@final
class SourceFilters:
    """The filters of a source.

    `criterion`: the condition on messages, None without such a filter.
    `binding`: the binding for a source that is an exchange, None without such a filter.
    `no_local`: the link does not get messages that its own connection has published.
    `stream`: the filters for streams, as arguments of a consumer of AMQP 0-9-1.
    `arguments`: the filters that are other arguments of a consumer of AMQP 0-9-1.
    """

    def __init__(self) -> None:
        self.criterion: Criterion | None = None
        self.binding: Binding | None = None
        self.no_local = False
        self.stream: dict[str, object] = {}
        self.arguments: dict[str, object] = {}
        self._filters: list[tuple[str, str, object]] | None = None

    def entry_filter(
        self, store: MessageStore, trouble: Callable[[str], None] | None = None
    ) -> SelectorFilter | None:
        """Return the filter for the consumer, None if it gets all messages. `trouble`: see SelectorFilter."""
        return None if self.criterion is None else SelectorFilter(self.criterion, store, trouble)

    def in_force(
        self, binding: bool = False, no_local: bool = False, stream: bool = False
    ) -> dict[str, object] | None:
        """Return the filters for the source in the answer, as they were given; None without any.

        `binding`, `no_local` and `stream` tell whether these filters are in force.
        """
        if self._filters is None:
            return None
        followed = {DIRECT: binding, TOPIC: binding, HEADERS: binding, _NO_LOCAL: no_local, _STREAM: stream}
        return {name: value for kind, name, value in self._filters if followed.get(kind, True)}

    def _add_argument(self, name: str, given: object) -> None:
        """Add an argument of consumers. Raises PeerError if it is present twice."""
        value = given
        if isinstance(given, Described):
            name = str(given.descriptor)
            value = given.value
        name = LINK_FILTERS[name]
        if name in self.arguments:
            raise _filter_error(name, " is present twice")
        self.arguments[name] = value

    def _add_stream_filter(self, given: Described) -> None:
        """Add a filter for streams, as an argument `x-stream-...` of consumers. Raises ValueError."""
        name = str(given.descriptor).removeprefix("rabbitmq:").removeprefix("amqpd:").removesuffix("-spec")
        value = given.value
        if isinstance(value, Timestamp):
            try:
                value = datetime.fromtimestamp(value / 1000, UTC)
            except (ValueError, OverflowError, OSError) as error:
                raise ValueError(f"has a timestamp out of range: {value}") from error
        self.stream["x-" + name] = value

    def read(self, given: list[tuple[str, str, object]], date: Callable[[], int]) -> None:
        """Read known filters, each with its kind and its name. Raises PeerError(INVALID_FIELD)."""
        self._filters = given
        criteria: dict[str, Criterion] = {}
        for kind, name, filter_value in given:
            if kind == _LINK:
                self._add_argument(name, filter_value)
                continue
            assert isinstance(filter_value, Described), "known filters are described"
            try:
                if kind in (DIRECT, TOPIC, HEADERS):
                    if self.binding is not None:
                        raise ValueError("is a second binding, and a source has only one")
                    self.binding = _binding(kind, filter_value.value)
                elif kind == _NO_LOCAL:
                    self.no_local = True
                elif kind == _STREAM:
                    self._add_stream_filter(filter_value)
                else:
                    criterion = _criterion(kind, filter_value.value, date)
                    if criterion is not None:
                        criteria[criterion.canonical] = criterion
            except PreconditionFailed as error:
                raise _filter_error(name, f": {error.text}") from error
            except ValueError as fault:
                raise _filter_error(name, f" {fault}") from fault
            if len(criteria) > CRITERIA_MAX:
                raise _filter_error(name, f" exceeds the limit of {CRITERIA_MAX} conditions")
        different = list(criteria.values())
        if different:
            self.criterion = different[0] if len(different) == 1 else _Conjunction(different)


def filters_of(given: Mapping[str, object] | None, date: Callable[[], int]) -> SourceFilters:
    """Return the filters in a source, whose values have the types of `decode_typed`.

    `date`: the time of day in ms since 1970. Unknown filters are left out.

    Raises:
        PeerError: INVALID_FIELD; a known filter does not parse, or there are too many.
    """
    filters = SourceFilters()
    if given is not None:
        known: list[tuple[str, str, object]] = []
        for name, value in given.items():
            kind = _kind_of(name, value)
            if kind is not None:
                known.append((kind, name, value))
        filters.read(known, date)
    return filters


@final
class _Conjunction(Criterion):
    """Several criteria, all of which a message has to match."""

    def __init__(self, criteria: list[Criterion]) -> None:
        demands = [demand for criterion in criteria for demand in criterion.demands]
        super().__init__(f"all: {sorted([criterion.canonical for criterion in criteria])}", demands)
        self._criteria = criteria

    def matches(self, view: MessageView) -> bool:
        """Whether the message matches all criteria."""
        return all(criterion.matches(view) for criterion in self._criteria)


def _kind_of(name: str, value: object) -> str | None:
    """Return the kind of a filter; None for an unknown filter."""
    if not isinstance(value, Described):
        return _LINK if name in LINK_FILTERS else None
    descriptor = value.descriptor
    if isinstance(descriptor, str) and descriptor in LINK_FILTERS:
        return _LINK
    return _KINDS.get(descriptor) if isinstance(descriptor, (int, str)) else None


def _criterion(kind: str, value: object, date: Callable[[], int]) -> Criterion | None:
    """Return the criterion of a filter's value; None for a blank selector, which all messages pass.

    Raises ValueError, PreconditionFailed.
    """
    if kind == _PROPERTIES:
        return PropertiesFilter(value)
    if kind == _APPLICATION_PROPERTIES:
        return ApplicationPropertiesFilter(value)
    text = _string(value)
    if kind == _SQL:
        return SqlFilter(text, date)
    return Selector(text) if text.strip() else None


def _binding(kind: str, value: object) -> Binding:
    """Return the binding of a filter's value. Raises ValueError."""
    if kind != HEADERS:
        key = _string(value)
        if not is_short(key):
            raise ValueError("is longer than 255 bytes")
        return Binding(kind, key, {})
    if not isinstance(value, Map):
        raise ValueError("is not a map")
    if len(value.pairs) > HEADERS_MAX:
        raise ValueError(f"has more than {HEADERS_MAX} fields")
    arguments: dict[str, object] = {}
    for name, wanted in value.pairs:
        header = _string(name)
        if header in arguments:
            raise ValueError(f"has '{header}' twice")
        arguments[header] = _argument(header, wanted)
    return Binding(kind, "", arguments)


def _argument(name: str, wanted: object) -> object:
    value = simple_value(wanted)
    if value is NOTHING:
        raise ValueError(f"has '{name}', which is not a simple value")
    if isinstance(value, bool):
        return value
    return int(value) if isinstance(value, int) else float(value) if isinstance(value, float) else value


def _string(value: object) -> str:
    if not isinstance(value, str) or isinstance(value, Char):
        raise ValueError("is not a string")
    return str(value)


def _filter_error(name: str, why: str) -> PeerError:
    text = f"filter '{name}'{why}"
    return PeerError(INVALID_FIELD, text[:TEXT_MAX], {"field": "filter"})
