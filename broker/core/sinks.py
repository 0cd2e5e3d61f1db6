"""The staged sinks of all virtual hosts, and what the log says of them. [amqpd]"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING, Final, final

from mypy_extensions import i64

from broker.core.attempt import Attempt, OpenRows, no_rows
from broker.core.definitions import DELETED, Change, flag_of, number_of, text_of
from broker.core.errors import LimitReached, NotFound
from broker.core.names import check_length
from broker.core.sink import ATTEMPT, SINK, Sink

if TYPE_CHECKING:
    from broker.core.broker import Broker
    from broker.core.vhost import VirtualHost

SINKS_MAX: Final = 1000  # of one virtual host


@final
class Sinks:
    """All sinks of a broker. `open_rows` reads the chunks that attempts have; it is set before recovery."""

    def __init__(self, broker: Broker) -> None:
        self.open_rows: OpenRows = no_rows
        self._broker = broker
        self._sinks: dict[tuple[str, str], Sink] = {}
        broker.appliers[SINK] = self.apply
        broker.definers.append(self.describe)

    def of(self, virtual_host: VirtualHost) -> list[Sink]:
        """The sinks of a virtual host."""
        return [sink for sink in self._sinks.values() if sink.virtual_host is virtual_host]

    def found(self, virtual_host: VirtualHost, query: str) -> Sink | None:
        """The sink of a query, None: there is none."""
        return self._sinks.get((virtual_host.name, query))

    def existing(self, virtual_host: VirtualHost, query: str) -> Sink:
        """The sink of a query. Raises NotFound."""
        sink = self.found(virtual_host, query)
        if sink is None:
            raise NotFound(f"no sink '{query}' in vhost '{virtual_host.name}'")
        return sink

    def attach(self, virtual_host: VirtualHost, query: str, user: str, since: i64 = 0) -> Sink:
        """A sink for a query, or the one that it has; nobody who attached before may use it any more.

        `since`: the epochs of a new one come after it. In time it grows, so that whoever has an epoch of an
        earlier sink of this name has none of these.

        Raises:
            LimitReached: the virtual host has too many.
            PreconditionFailed: the name is empty, longer than 255 bytes or no Unicode text.
            StoreFailed: the log has stopped.
        """
        check_length("sink name", query)
        self._broker.store.require()
        sink = self.found(virtual_host, query)
        if sink is None:
            if len(self.of(virtual_host)) >= SINKS_MAX:
                raise LimitReached(f"vhost '{virtual_host.name}' has {SINKS_MAX} sinks already")
            sink = Sink(virtual_host, query, user, self.open_rows)
            sink.epoch = since
            self._sinks[virtual_host.name, query] = sink
        sink.attach()
        return sink

    def delete(self, sink: Sink) -> None:
        """Forget a sink, with everything that has not been published. Raises StoreFailed."""
        self._broker.store.require()
        name = sink.virtual_host.name
        del self._sinks[name, sink.query]
        self._broker.store.append_definition({"kind": SINK + DELETED, "vhost": name, "query": sink.query})
        sink.forget()

    def leave(self, vhost: str) -> None:
        """A virtual host has been deleted, with its sinks; the log has been told."""
        for key in [key for key in self._sinks if key[0] == vhost]:
            self._sinks.pop(key).forget()

    def describe(self) -> Iterator[list[Change]]:
        """Each sink, for the log."""
        for key, sink in list(self._sinks.items()):
            yield [sink.describe()] if self._sinks.get(key) is sink else []

    def apply(self, change: Change) -> None:
        """Apply a change that the log brought back. Raises ValueError."""
        name = text_of(change, "vhost")
        query = text_of(change, "query")
        kind = text_of(change, "kind")
        virtual_host = self._broker.vhosts.get(name)
        sink = self._sinks.get((name, query))
        if kind == SINK + DELETED:
            if sink is not None:
                del self._sinks[name, query]
                sink.forget()
        elif kind == ATTEMPT:
            attempt = _numbers(change, "attempt")
            if len(attempt) != 4:
                raise ValueError(f"an attempt has four numbers: {change}")
            if virtual_host is not None:
                virtual_host.numbers.reserve(attempt[0])
            if sink is not None and attempt[0] not in sink.attempts:  # else it is described yet
                sink.attempts[attempt[0]] = Attempt(sink.virtual_host, *attempt)
        elif kind != SINK:
            raise ValueError(f"no definition is of kind {kind!r}")
        elif virtual_host is not None:
            if sink is None:
                sink = Sink(virtual_host, query, text_of(change, "user"), self.open_rows)
                self._sinks[name, query] = sink
            _apply(sink, change)

    def recover(self) -> None:
        """Recovery is over, and nobody is served yet: what is committed goes on."""
        for sink in self._sinks.values():
            for attempt in [*sink.attempts.values(), *sink.moving]:
                attempt.count()
            sink.go_on()


def _apply(sink: Sink, change: Change) -> None:
    """A sink is as described. Raises ValueError."""
    sink.epoch = number_of(change, "epoch")
    sink.last = number_of(change, "last")
    sink.mandatory = flag_of(change, "mandatory")
    sink.checkpoint = text_of(change, "checkpoint") if "checkpoint" in change else ""
    described = change.get("attempts")
    if not isinstance(described, list):
        raise ValueError(f"a sink needs a list of attempts: {change}")
    before = sink.attempts | {int(each.number): each for each in sink.moving}
    found: dict[int, Attempt] = {}
    for each in described:
        numbers = _numbers({"attempt": each}, "attempt")
        if len(numbers) != 4:
            raise ValueError(f"an attempt has four numbers: {change}")
        number = numbers[0]
        sink.virtual_host.numbers.reserve(number)
        known = before.pop(number, None)
        found[number] = known if known is not None else Attempt(sink.virtual_host, *numbers)
    for gone in before.values():
        sink.let_go(gone)
    try:
        sink.moving = [found.pop(number) for number in _numbers(change, "moving")]
    except KeyError as error:
        raise ValueError(f"a sink has no attempt {error}: {change}") from error
    sink.attempts = found


def _numbers(change: Change, field: str) -> list[int]:
    """A field that is a list of integers. Raises ValueError."""
    value = change.get(field)
    if not isinstance(value, list) or not all(isinstance(each, int) for each in value):
        raise ValueError(f"a sink needs integers as {field!r}: {change}")
    return value
