"""The daemon's numbers for the admin HTTP server: plain values, read without locks and without waiting."""

import time
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from pathlib import Path
from typing import Final, Protocol

from broker.adapters.peers.connections import Connections
from broker.admin.readers import Readers
from broker.core.broker import Broker
from broker.dispatch.definition import Definition
from broker.dispatch.dispatcher import Totals
from config.running import RunningSettings
from config.settings import Settings

COMPATIBLE_WITH: Final = "3.13.0"
"""The version of RabbitMQ whose API this is: tools choose their requests by it."""


class Measures(Protocol):
    """A histogram of durations in seconds, or of sizes in bytes, kept in plain integers."""

    @property
    def bounds(self) -> Sequence[float]:
        """Upper bounds of the buckets, ascending, without infinity."""

    @property
    def counts(self) -> Sequence[int]:
        """The number of durations in each bucket; one more bucket than there are bounds."""

    @property
    def sum(self) -> float:
        """The sum of all durations."""


class MeasuredLog(Protocol):
    """The log's size, speed and health."""

    @property
    def bytes_on_disk(self) -> int:
        """Size of all segments."""

    @property
    def segment_count(self) -> int:
        """Number of segments."""

    @property
    def message_reads(self) -> int:
        """Number of messages that were read from the disk."""

    @property
    def damaged_segments(self) -> int:
        """Number of segments that could not be read back."""

    @property
    def sync_latency(self) -> Measures:
        """Durations of syncs."""

    @property
    def failure(self) -> str:
        """The reason why the log refuses appends; empty while the log works."""


class MeasuredShortage(Protocol):
    """A shortage of memory or disk space, for which publishers wait."""

    @property
    def reason(self) -> str:
        """The shortage in words; empty without one."""

    @property
    def memory(self) -> bool:
        """Whether memory is short."""

    @property
    def disk(self) -> bool:
        """Whether disk space is short."""

    @property
    def held(self) -> Sized:
        """The connections that wait to publish."""


class MeasuredLink(Protocol):
    """The state and counts of a shovel, or of another link that forwards messages."""

    @property
    def labels(self) -> tuple[str, ...]:
        """The names of the link, for the labels of its metrics."""

    @property
    def is_running(self) -> bool:
        """Whether the link takes messages."""

    @property
    def attempts(self) -> int:
        """The attempts to connect."""

    @property
    def source_ready(self) -> int:
        """Messages that wait in the source queue; -1: it is in another broker."""

    @property
    def forwarded(self) -> int:
        """Messages sent to the destination, with repetitions."""

    @property
    def confirmed(self) -> int:
        """Messages that are done."""

    @property
    def refused(self) -> int:
        """Messages that the destination has refused."""

    @property
    def in_flight(self) -> int:
        """Messages that are sent and not confirmed."""


def no_links() -> Iterable[MeasuredLink]:
    """Return no link."""
    return ()


class MeasuredResources(Protocol):
    """The process's use of memory and disk at the last check, and the limits; in bytes."""

    @property
    def shortage(self) -> MeasuredShortage:
        """The present shortage."""

    @property
    def memory(self) -> int:
        """Resident memory of the process."""

    @property
    def memory_max(self) -> int:
        """Resident memory above which publishers wait."""

    @property
    def disk_free(self) -> int:
        """Free space on the disk of the data; -1 if the system does not report it."""

    @property
    def disk_free_min(self) -> int:
        """Free space below which publishers wait."""


class MeasuredDispatcher(Protocol):
    """A dispatcher's counts."""

    @property
    def definition(self) -> Definition:
        """The definition of the dispatcher, with its name and virtual host."""

    @property
    def totals(self) -> Totals:
        """The counts since start."""

    @property
    def calls_in_progress(self) -> int:
        """The number of calls in progress."""

    @property
    def is_waiting(self) -> bool:
        """Whether the circuit breaker or the target stops all calls for a while."""


class MeasuredDispatchers(Protocol):
    """The dispatchers."""

    def working(self) -> Sequence[MeasuredDispatcher]:
        """Return all dispatchers."""


@dataclass(frozen=True)
class Measured:
    """All sources of the metrics."""

    broker: Broker
    connections: Connections
    log: MeasuredLog
    loop_lag: Measures
    resources: MeasuredResources
    dispatchers: MeasuredDispatchers


def never_shut_down(user: str, reason: str) -> None:
    """Refuse to stop: there is no daemon."""
    raise NotImplementedError


async def never_set_accepting(wanted: bool) -> str:
    """Refuse to change whether clients can connect: there is no daemon."""
    raise NotImplementedError


@dataclass(frozen=True)
class AdminState:
    """The part of the daemon that the admin HTTP server may see.

    `not_ready` returns the reason why the daemon does not serve clients, or "". `readers` has the progress
    that programs report. `shovels` returns all shovels. `links` returns the number of federation links by
    status, and `federation_links` the links. `remote_links` returns the links of remote queues.
    `mechanisms` are the SASL mechanisms, `data_folder` the folder of the data. `started` is the time of the
    start on the system's steady clock, in seconds.
    `certificate_files` has the file with the certificate of each protocol over TLS. `settings` are the
    settings in effect. `shut_down` stops the daemon; it takes the user and the reason for the log.
    `set_accepting` has the daemon accept connections of clients, or no more; it returns why that failed, or
    "". `rabbitmq_version` is the version of RabbitMQ that tools see.
    """

    version: str
    flavour: str
    measured: Measured
    not_ready: Callable[[], str]
    readers: Readers = field(default_factory=Readers)
    shovels: Callable[[], Iterable[MeasuredLink]] = no_links
    links: Callable[[], Mapping[str, int]] = dict
    federation_links: Callable[[], Iterable[MeasuredLink]] = no_links
    remote_links: Callable[[], Iterable[MeasuredLink]] = no_links
    mechanisms: Sequence[str] = ()
    data_folder: str = ""
    certificate_files: Mapping[str, Path] = field(default_factory=dict)
    settings: RunningSettings = field(default_factory=lambda: RunningSettings(Settings(), {}))
    shut_down: Callable[[str, str], None] = never_shut_down
    set_accepting: Callable[[bool], Awaitable[str]] = never_set_accepting
    started: float = field(default_factory=time.monotonic)
    rabbitmq_version: str = COMPATIBLE_WITH
