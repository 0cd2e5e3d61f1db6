"""A client's connection of either protocol, as whoever owns its socket knows it."""

from __future__ import annotations

from mypy_extensions import i64

from broker.adapters.access import Origin, Rights
from broker.adapters.server import Edge, Server
from broker.core.delivery.session import Connection, Scheduler


class ServedConnection(Connection):
    """What one client has open. Created by the transport after the protocol header, gone with the socket.

    `heartbeat`: seconds; the transport sends AMQP 0-9-1 heartbeats and hangs up without them; 0: it does
    neither. `publishes`: it may be ahead of the log; `braked`: it was, and is not read from.
    """

    def __init__(self, server: Server, scheduler: Scheduler, edge: Edge, origin: Origin) -> None:
        super().__init__(scheduler)
        self.server = server
        self.edge = edge
        self.origin = origin
        self.name = origin.name
        self.peer = origin.peer
        self.address = origin.peer if origin.address else ""
        self.mechanism = ""
        self.rights = Rights(server.access, "", "")
        self.heartbeat: i64 = 0
        self.container: str | None = None  # the peer's container-id; clients of AMQP 0-9-1 have none
        self.sole = False  # the only one of that
        self.publishes = False
        self.braked = False
        self.leaving = False  # its virtual host is gone: it is about to be closed

    def is_open(self) -> bool:
        """Whether the handshake is over."""
        raise NotImplementedError

    def start(self) -> None:
        """Say what comes first from this side."""
        raise NotImplementedError

    def receive(self, data: bytes) -> None:
        """Take the next bytes from the socket; ends the turn with one write."""
        raise NotImplementedError

    def keep_back(self, reason: i64) -> None:
        """Take no more frames, but read on, until every reason for it has been released."""
        raise NotImplementedError

    def release(self, reason: i64) -> None:
        """Go on, unless there is another reason not to."""
        raise NotImplementedError

    def kept_bytes(self) -> i64:
        """How much has been read that no frame has been taken from."""
        raise NotImplementedError

    def admit_new(self) -> None:
        """Ask whether a queue, exchange or binding may be added: memory may be short.

        Raises:
            LimitReached: it may not, in AMQP 1.0. In 0-9-1 it may, and the connection is held behind it.
        """
        raise NotImplementedError

    def part_bytes(self) -> i64:
        """Bytes in memory of contents that have come in part, if frames of theirs may be held."""
        return 0

    def is_deaf(self) -> bool:
        """Whether it takes no frames any more."""
        raise NotImplementedError

    def log_is_behind(self) -> None:
        """Read nothing more from whoever publishes until what has been appended is on disk."""
        raise NotImplementedError

    def force_close(self, reason: str) -> None:
        """Close the connection: an operator wants it so, or the broker stops."""
        raise NotImplementedError

    def give_place(self, condition: str, text: str, info: dict[str, object]) -> None:
        """Close the connection, which has a container, because another one has taken its place."""
        raise NotImplementedError

    def lost(self, reason: str) -> None:
        """The socket is gone: everything that the connection held goes back."""
        raise NotImplementedError
