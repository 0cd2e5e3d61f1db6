"""The parts of the daemon that the API uses, and the rates of its counters."""

import time
from collections import OrderedDict
from collections.abc import Awaitable, Callable, Hashable, Mapping
from dataclasses import dataclass, field
from typing import Annotated, Final, final

from fastapi import Depends, Request

from broker.adapters.peers.connections import Connections
from broker.adapters.peers.server import Server
from broker.admin.api.answers import ApiError
from broker.admin.state import AdminState
from broker.auth.access_control import AccessControl
from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.ports import MessageStore
from broker.core.queues.queue import Queue
from broker.dispatch.dispatchers import Dispatchers
from broker.forwarding.federation import Federation
from broker.forwarding.shovels import Shovels
from broker.journal.catalogue import ServedJournal

INTERVAL_SECONDS: Final = 5.0  # samples in shorter intervals have the same rates
SUMS_MAX: Final = 1000  # a sum for each set of virtual hosts that a user may see

Shown = dict[str, object]


@final
class Sample:
    """Counters at a time, in seconds, and their growth per second since the sample before."""

    __slots__ = ("counters", "rates", "time")

    def __init__(self, time: float, counters: tuple[int, ...], rates: tuple[float, ...]) -> None:
        self.time = time
        self.counters = counters
        self.rates = rates


class Rates:
    """Counters with their rates. The first sample has rates of 0.0.

    Sampling 100,000 queues without a request would cost more than routing messages. So the rates come from
    two requests of a client, as monitors send them. A queue stores its sample as long as it exists.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sums: OrderedDict[Hashable, Sample] = OrderedDict()

    def of_queue(self, queue: Queue, counters: Mapping[str, int]) -> Shown:
        """Return the counters of a queue as RabbitMQ shows them: each with its rate."""
        before = queue.sample
        sample = self._next(before if isinstance(before, Sample) else None, counters)
        queue.sample = sample
        return _shown(counters, sample)

    def of_sum(self, key: Hashable, counters: Mapping[str, int]) -> Shown:
        """Return sums of counters with their rates; `key` names the summed objects."""
        sample = self._next(self._sums.pop(key, None), counters)
        self._sums[key] = sample
        if len(self._sums) > SUMS_MAX:
            self._sums.popitem(last=False)
        return _shown(counters, sample)

    def _next(self, before: Sample | None, counters: Mapping[str, int]) -> Sample:
        now, values = self._clock(), tuple(counters.values())
        if before is None:
            return Sample(now, values, (0.0,) * len(values))
        seconds = now - before.time
        if seconds < INTERVAL_SECONDS:
            return before
        grown = zip(values, before.counters, strict=True)
        return Sample(now, values, tuple(max(0.0, round((new - old) / seconds, 1)) for new, old in grown))


def _shown(counters: Mapping[str, int], sample: Sample) -> Shown:
    shown: Shown = {}
    for (name, value), rate in zip(counters.items(), sample.rates, strict=True):
        shown[name] = value
        shown[f"{name}_details"] = {"rate": rate}
    return shown


@dataclass(frozen=True)
class Management:
    """All objects that the API shows and changes.

    `make_password` hashes a password off the event loop. `listeners` are the addresses that the daemon
    listens on: protocol, host and port.
    """

    state: AdminState
    server: Server
    users: Users
    access: AccessControl
    make_password: Callable[[str], Awaitable[Password]]
    node: str
    journal: ServedJournal
    shovels: Shovels
    federation: Federation
    dispatchers: Dispatchers
    listeners: list[tuple[str, str, int]]
    rates: Rates = field(default_factory=Rates)
    started: float = field(default_factory=time.monotonic)

    @property
    def broker(self) -> Broker:
        """The broker with its virtual hosts."""
        return self.server.broker

    @property
    def store(self) -> MessageStore:
        """The log, to wait for syncs."""
        return self.server.store

    @property
    def connections(self) -> Connections:
        """The open connections."""
        return self.server.connections


def require_memory(management: Management) -> None:
    """Refuse an addition while memory is short. Raises ApiError."""
    shortage = management.server.shortage
    if shortage.memory:
        reason = f"nothing new can be declared while the broker is {shortage.reason}"
        raise ApiError(503, "service_unavailable", reason)


def managed(request: Request) -> Management:
    """Return the daemon that serves a request."""
    management = request.app.state.management
    assert isinstance(management, Management)
    return management


Managed = Annotated[Management, Depends(managed)]
"""The daemon that serves the request."""
