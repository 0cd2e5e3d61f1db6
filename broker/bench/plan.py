"""The plan of a run of `amqpd bench`: the broker, the connections, the load, and the checks."""

from dataclasses import dataclass
from typing import Final
from urllib.parse import unquote, urlsplit

STAMP_BYTES: Final = 16
"""Smallest body: lane and sequence number (8 bytes), and the time of publishing (8 bytes)."""

AMQP_091: Final = "0-9-1"
AMQP_10: Final = "1.0"
PROTOCOLS: Final = (AMQP_091, AMQP_10)

LANES_MAX: Final = 1 << 16


class PlanError(ValueError):
    """An impossible plan; the text names the option and the allowed values."""


@dataclass(frozen=True, slots=True)
class Address:
    """The broker's address, and the user."""

    host: str
    port: int
    user: str
    password: str
    virtual_host: str

    @staticmethod
    def parse(url: str) -> "Address":
        """Read amqp://user:password@host:port/vhost. Defaults are guest, guest, localhost, 5672, /."""
        parts = urlsplit(url)
        if parts.scheme != "amqp":
            raise PlanError(f"--url {url!r}: allowed is amqp://user:password@host:port/vhost")
        try:
            port = parts.port
        except ValueError as error:
            raise PlanError(f"--url {url!r}: {error}") from error
        path = parts.path.removeprefix("/")
        return Address(
            host=parts.hostname or "localhost",
            port=5672 if port is None else port,
            user=unquote(parts.username or "guest"),
            password=unquote(parts.password or "guest"),
            virtual_host=unquote(path) or "/",
        )

    def __str__(self) -> str:
        """Return the address without the password."""
        host = f"[{self.host}]" if ":" in self.host else self.host
        return f"{self.user}@{host}:{self.port} vhost {self.virtual_host}"


@dataclass(frozen=True, slots=True)
class Plan:
    """A run. Sizes are in bytes, times in seconds, `rate` in messages per second over all publishers."""

    address: Address
    protocol: str = AMQP_091
    publishers: int = 1
    consumers: int = 1
    queues: int = 1
    size: int = 1024
    persistent: bool = False
    durable: bool = False
    stream: bool = False
    confirm: int = 0  # most unconfirmed messages of a publisher; 0: no confirms
    prefetch: int = 0  # 0: no limit
    auto_ack: bool = False
    ack_every: int = 1
    rate: float = 0.0  # 0: no limit
    seconds: float | None = None  # the publishing ends after these seconds,
    count: int | None = None  # or after so many messages
    in_flight: int = 10_000  # most messages published and not received yet; 0: no limit
    bindings: int = 0  # bindings of the topic exchange that is published to; 0: the default exchange
    keys: int = 1  # different routing keys of each queue with bindings; 0: each message has its own

    def __post_init__(self) -> None:
        for wrong, text in (
            (self.protocol not in PROTOCOLS, f"--protocol: {' or '.join(PROTOCOLS)}"),
            (self.publishers < 1, "--publishers: at least 1"),
            (self.consumers < 0, "--consumers: at least 0"),
            (self.queues < 1, "--queues: at least 1"),
            (self.size < STAMP_BYTES, f"--size: at least {STAMP_BYTES}, for sequence number and time"),
            (not 0 <= self.prefetch <= 65535, "--prefetch: 0 to 65535"),
            (self.confirm < 0, "--confirm: at least 0"),
            (self.ack_every < 1, "--ack-every: at least 1"),
            (self.rate < 0, "--rate: at least 0"),
            (self.in_flight < 0, "--in-flight: at least 0"),
            (0 != self.bindings < self.queues, "--bindings: 0, or at least one for each of --queues"),
            (self.keys < 0, "--keys: at least 0"),
            (self.keys != 1 and self.bindings == 0, "--keys: only with --bindings"),
            ((self.seconds is None) == (self.count is None), "one of --duration and --count"),
            (self.seconds is not None and self.seconds <= 0, "--duration: more than 0"),
            (self.count is not None and self.count < 1, "--count: at least 1"),
            (
                not self.auto_ack and 0 < self.prefetch < self.ack_every,
                "--ack-every: at most --prefetch, or nothing more would be delivered",
            ),
            (
                self.stream and self.consumers > 0 and (self.auto_ack or self.prefetch == 0),
                "--stream: needs --prefetch, and goes not with --auto-ack",
            ),
            (
                not self.auto_ack and self.consumers > 0 and 0 < self.in_flight < self.ack_every,
                "--ack-every: at most --in-flight",
            ),
            (max(self.publishers, self.queues) > LANES_MAX, f"--publishers, --queues: at most {LANES_MAX}"),
        ):
            if wrong:
                raise PlanError(text)

    @property
    def lanes(self) -> list[tuple[int, int]]:
        """Return each pair of publisher and queue. The index is the lane's number."""
        pairs = (
            (p, q) for p in range(self.publishers) for q in assign_queues(p, self.publishers, self.queues)
        )
        return list(pairs)

    @property
    def bounded_in_flight(self) -> int:
        """Return the limit of messages in flight that applies: none without consumers."""
        return self.in_flight if self.consumers else 0


def assign_queues(member: int, members: int, queues: int) -> list[int]:
    """Return the queues of one publisher or consumer: every queue has one, and every member has a queue."""
    return [member % queues] if members >= queues else list(range(member, queues, members))
