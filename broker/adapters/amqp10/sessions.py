"""The sessions of an AMQP 1.0 connection, by channel, and the frames that are for them. [amqp-1.0 2.5]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.adapters.amqp10.control import decode, name_of
from broker.adapters.amqp10.incoming import IncomingLink
from broker.adapters.amqp10.sending import send_all_on
from broker.adapters.amqp10.session import Session10
from broker.auth.terms import MAX_CHANNELS
from broker.core.schedule import METHOD, PAYLOAD
from protocol.amqp10.conditions import (
    ILLEGAL_STATE,
    NOT_ALLOWED,
    RESOURCE_LIMIT_EXCEEDED,
    DecodeError,
    PeerError,
)
from protocol.amqp10.constructors import SMALL_ULONG
from protocol.amqp10.descriptors import DISPOSITION, FLOW, TRANSFER
from protocol.amqp10.dispositions import Disposition
from protocol.amqp10.fields import Fields
from protocol.amqp10.flows import Flow
from protocol.amqp10.performatives import Attach, Begin, Close, Detach, End, Open
from protocol.amqp10.transfers import Transfer

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10


@final
class Sessions:
    """Those that are mapped; what is read of a frame is used again for the next."""

    def __init__(self, connection: Connection10) -> None:
        self._connection = connection
        self._mapped: list[Session10 | None] = []
        self._fields = Fields()
        self._transfer = Transfer()
        self._disposition = Disposition()
        self._flow = Flow()

    def all(self) -> list[Session10]:
        """Every one, in the order of their channels."""
        return [session for session in self._mapped if session is not None]

    def take(self, channel: i64, data: bytes, start: i64, end: i64) -> bool:
        """Take the performative of one frame; False if it is the connection's own. Raises PeerError."""
        if end - start > 2 and data[start] == 0 and data[start + 1] == SMALL_ULONG:
            code: i64 = data[start + 2]
        else:
            code = self._fields.descriptor(data, start, end, "performative")
        if code == TRANSFER:
            session = self._session(channel, "transfer")
            try:
                self._transfer.read(data, start, end)
            except DecodeError:
                raise
            except PeerError as error:  # its link alone is to blame
                session.blame(self._transfer.handle, error)
                return True
            if not session.ending:
                session.on_transfer(self._transfer, data, end)
        elif code == DISPOSITION:
            session = self._session(channel, "disposition")
            self._disposition.read(data, start, end)
            if not session.ending:
                session.on_disposition(self._disposition)
        elif code == FLOW:
            session = self._session(channel, "flow")
            self._flow.read(data, start, end)
            if not session.ending:
                session.on_flow(self._flow)
        else:
            return self._take_other(channel, data, start, end)
        return True

    def ended(self, channel: i64) -> None:
        """The channel of a session is free again."""
        self._mapped[channel] = None
        connection = self._connection
        connection.server.counters.channels_closed += 1
        connection.server.connections.add_channels(connection.user, -1)

    def send_on(self) -> bool:
        """Send more of deliveries that are on their way in parts; whether there is yet more to be sent."""
        more = False
        for session in self.all():
            if session.sending:
                send_all_on(session)
                more = more or (len(session.sending) > 0 and session.outgoing.left > 0)
        return more

    def top_up(self) -> None:
        """Allow senders more."""
        for session in self.all():
            for link in session.links.values():
                if isinstance(link, IncomingLink):
                    session.owed.touch(link)

    def let_go(self) -> None:
        """The connection ends: no session catches what another one gives back."""
        self._connection.close_targets()
        for session in self.all():
            session.let_go()
            self.ended(session.channel)

    def _take_other(self, channel: i64, data: bytes, start: i64, end: i64) -> bool:
        allowance = self._connection.server.broker.schedule.allowance
        allowance.use(METHOD + (end - start) // PAYLOAD)
        performative = decode(data, start, end)
        if isinstance(performative, Open | Close):
            return False
        if isinstance(performative, Begin):
            self._begin(channel, performative)
            return True
        session = self._session(channel, name_of(performative))
        if isinstance(performative, End):
            session.on_end()
        elif session.ending:
            return True  # whatever it is
        elif isinstance(performative, Attach):
            session.on_attach(performative)
        elif isinstance(performative, Detach):
            session.on_detach(performative)
        else:
            raise PeerError(ILLEGAL_STATE, f"{name_of(performative)} is no performative for a session")
        return True

    def _begin(self, channel: i64, begin: Begin) -> None:
        mapped = self._mapped
        while len(mapped) <= channel:
            mapped.append(None)
        if mapped[channel] is not None:
            raise PeerError(ILLEGAL_STATE, f"channel {channel} has a session")
        connection = self._connection
        mapped[channel] = session = _begun(connection, channel, begin)
        connection.server.counters.channels_opened += 1
        server, user = connection.server, connection.user
        limit = server.access.limit(user, MAX_CHANNELS)
        if limit is not None and server.connections.channels_of_user(user) >= limit:
            text = f"user '{user}' has {limit} sessions and channels, which is the limit"
            session.fail(RESOURCE_LIMIT_EXCEEDED, text)
        server.connections.add_channels(user, 1)

    def _session(self, channel: i64, what: str) -> Session10:
        session = self._mapped[channel] if channel < len(self._mapped) else None
        if session is None:
            raise PeerError(ILLEGAL_STATE, f"{what} on channel {channel}, which has no session")
        return session


def _begun(connection: Connection10, channel: i64, begin: Begin) -> Session10:
    """Take the peer's begin. Raises PeerError."""
    if begin.remote_channel is not None:
        raise PeerError(NOT_ALLOWED, "begin.remote-channel answers a session that nobody has begun")
    virtual_host = connection.virtual_host
    assert virtual_host is not None, "an open connection has one"
    session = Session10(connection, virtual_host, channel, begin)
    session.begin()
    return session
