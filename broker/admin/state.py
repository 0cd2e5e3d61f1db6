"""The daemon's figures for the admin surface: plain values, without locks and without waits."""

from collections.abc import Callable, Mapping, Sequence, Sized
from dataclasses import dataclass, field
from typing import Protocol

from broker.admin.readers import Readers
from broker.core.counters import Counters
from broker.core.delivery.journal import Journal


class Measures(Protocol):
    """A histogram of durations in seconds, kept in plain integers."""

    @property
    def bounds(self) -> Sequence[float]:
        """Upper bounds of the buckets, ascending, without infinity."""

    @property
    def counts(self) -> Sequence[int]:
        """How many fell into each bucket; one more than there are bounds."""

    @property
    def sum(self) -> float:
        """All durations added up."""


class MeasuredQueue(Protocol):
    """A queue's counts."""

    @property
    def ready(self) -> int:
        """Entries that consumers may take."""

    @property
    def unacked(self) -> int:
        """Entries that consumers hold."""

    @property
    def ready_bytes(self) -> int:
        """Bodies of the ready entries."""

    @property
    def unacked_bytes(self) -> int:
        """Bodies of the entries that consumers hold."""

    @property
    def held(self) -> int:
        """Entries that wait for their next delivery."""

    @property
    def dead(self) -> int:
        """Messages that wait to be dead-lettered."""

    @property
    def consumer_count(self) -> int:
        """Consumers of the queue."""

    @property
    def volatile(self) -> object | None:
        """The counters of messages lost at restarts, if the queue is volatile."""

    @property
    def memory(self) -> object | None:
        """The memory of message ids, if the queue has one."""


class MeasuredTopology(Protocol):
    """The queues of a virtual host, by name."""

    @property
    def queues(self) -> Mapping[str, MeasuredQueue]:
        """Every queue."""


class MeasuredVirtualHost(Protocol):
    """A virtual host."""

    @property
    def topology(self) -> MeasuredTopology:
        """The queues of the virtual host."""


class MeasuredBroker(Protocol):
    """The virtual hosts by name, and the totals since start."""

    @property
    def vhosts(self) -> Mapping[str, MeasuredVirtualHost]:
        """Every virtual host."""

    @property
    def counters(self) -> Counters:
        """Totals since start."""

    @property
    def journal(self) -> Journal:
        """How much is journaled."""


class MeasuredLog(Protocol):
    """The log's size, speed and health."""

    @property
    def bytes_on_disk(self) -> int:
        """Size of all segments."""

    @property
    def segment_count(self) -> int:
        """How many segments there are."""

    @property
    def damaged_segments(self) -> int:
        """How many of them have turned out not to read back."""

    @property
    def sync_latency(self) -> Measures:
        """How long syncs took."""

    @property
    def failure(self) -> str:
        """Why the log accepts nothing any more; empty while it does."""


class MeasuredShortage(Protocol):
    """The resources that the machine is short of."""

    @property
    def reason(self) -> str:
        """In words; empty while there is enough."""

    @property
    def memory(self) -> bool:
        """Whether it is memory."""

    @property
    def disk(self) -> bool:
        """Whether it is space on the disk."""

    @property
    def held(self) -> Sized:
        """The publishers that wait."""


class MeasuredResources(Protocol):
    """The process's use of the machine at the last look, and the limits; in bytes."""

    @property
    def shortage(self) -> MeasuredShortage:
        """The resources that are short."""

    @property
    def memory_max(self) -> int:
        """Resident memory above which publishers wait."""

    @property
    def disk_free(self) -> int:
        """Free space where the data is; -1 where the system does not tell."""

    @property
    def disk_free_min(self) -> int:
        """Free space below which publishers wait."""


@dataclass(frozen=True)
class Measured:
    """Everything that the metrics are taken from."""

    broker: MeasuredBroker
    log: MeasuredLog
    loop_lag: Measures
    resources: MeasuredResources


@dataclass(frozen=True)
class AdminState:
    """The part of the daemon that the admin surface may see.

    `not_ready` says why the daemon cannot do its work yet or any more; empty when it can. `readers` are what
    programs tell of themselves.
    """

    version: str
    flavour: str
    measured: Measured
    not_ready: Callable[[], str]
    readers: Readers = field(default_factory=Readers)
