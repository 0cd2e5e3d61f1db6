"""The source of a federation link: a connection to an upstream, whose messages get the header of federation.

[RabbitMQ federation] A message that has passed too many links, or has been here, is acknowledged and not
forwarded. So the numbers of forwarded messages are not the delivery tags of the upstream.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

from mypy_extensions import i64
from pamqp import base, commands

from broker.core.routing.federation import RECEIVED_FROM
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.definition import NO_ACK, Definition
from broker.forwarding.ends import End091, EndHost
from broker.forwarding.ports import EndOwner, Run, Timer
from broker.forwarding.upstream import Upstream
from broker.forwarding.uri import Uri
from protocol.amqp091 import constants as c
from protocol.amqp091.fields import Reader
from protocol.amqp091.incoming import WHOLE_BYTES_MAX
from protocol.amqp091.properties import USER_ID, Field, Properties
from protocol.amqp091.table import encode_table
from protocol.errors import ProtocolError

Done = Callable[[base.Frame], None]
Step = Callable[[], None]
HEADER: Final = RECEIVED_FROM.encode()


@final
class Place:
    """The local end of a link: a federated exchange or queue, which `kind` says, in a virtual host.

    `cluster_name`: the name of this broker. `policy`: the policy that federates the object. `former_names`:
    other names of this broker, under which queues at upstreams may have messages, the latest first.
    """

    def __init__(
        self,
        vhost: VirtualHost,
        kind: str,
        name: str,
        cluster_name: str,
        policy: str,
        former_names: tuple[str, ...] = (),
    ) -> None:
        self.vhost = vhost
        self.kind = kind
        self.name = name
        self.cluster_name = cluster_name
        self.policy = policy
        self.former_names = former_names


class FederatedSource(End091):
    """The connection to an upstream. Subclasses set up the upstream's side, and write the header's entries.

    `target`: the name of the exchange or queue at the upstream.
    """

    def __init__(
        self,
        owner: EndOwner,
        definition: Definition,
        uri: Uri,
        host: EndHost,
        upstream: Upstream,
        place: Place,
        target: str,
    ) -> None:
        super().__init__(owner, definition, uri, host, "upstream")
        self.upstream = upstream
        self.place = place
        self.target = target
        self.no_ack = upstream.ack_mode == NO_ACK
        self._expected: tuple[int, ...] = ()
        self._otherwise: Step = self.set_up
        self._soon = Timer(owner, self.do_soon)
        self._missing: i64 = 0  # bytes of a large body that have not arrived
        self._drops = False  # the large body belongs to a message that is not forwarded
        self._dropped: i64 = 0  # messages that were not forwarded
        self._tags: dict[int, int] = {}  # tags of unsettled messages with another number

    # -- the broker at the other end

    @property
    def upstream_name(self) -> str:
        """The name of the upstream's broker, "" for a broker that has none."""
        if self.uri.is_local:
            return self.place.cluster_name
        name = self.client.server_properties.get("cluster_name")
        return name if isinstance(name, str) else ""

    def entry_of(self, **fields: object) -> bytes:
        """Return an entry of the header of federation, encoded with its type."""
        return b"F" + encode_table({"uri": self.uri.shown, self.place.kind: self.place.name, **fields})

    def expect(self, codes: tuple[int, ...], otherwise: Step) -> None:
        """Continue with `otherwise` on another channel if the upstream closes this one with such a code."""
        self._expected, self._otherwise = codes, otherwise

    def expect_success(self) -> None:
        """Let any error of the channel end the attempt."""
        self._expected = ()

    def on_ready(self) -> None:
        """Continue the set-up on the channel."""
        self._otherwise()

    def on_channel_closed(self, code: int, text: str) -> None:
        """Continue the set-up after an expected error."""
        if code in self._expected:
            self._expected = ()
            self.client.open_channel()
        else:
            super().on_channel_closed(code, text)

    def set_up(self) -> None:
        """Begin the set-up of the upstream's side, on the first channel."""
        raise NotImplementedError

    def limit_deliveries(self, done: Done) -> None:
        """Send basic.qos, unless the upstream waits for no acknowledgement."""
        if self.no_ack:
            done(commands.Basic.QosOk())
        else:
            self.client.ask(commands.Basic.Qos(0, self.upstream.prefetch, False), c.BASIC_QOS_OK, done)

    def wake(self) -> None:
        """Call `do_soon` in a later step."""
        if self._soon.due == 0 and not self._closing:
            self._schedule.set(self._soon, self._schedule.now())

    def do_soon(self) -> None:
        """Do the work for which `wake` was called."""
        raise NotImplementedError

    def close(self) -> None:
        """Close the connection. The owner gets no more calls."""
        self._schedule.cancel(self._soon)
        super().close()

    # -- messages

    def on_delivery(
        self, tag: i64, redelivered: bool, address: bytes, content: bytes, size: i64, traits: i64
    ) -> None:
        """Pass a message on with its new header, or acknowledge a message that must not be forwarded."""
        has_pieces = size > WHOLE_BYTES_MAX
        if has_pieces:
            self._missing = size
        if self._closing:
            return
        changed = self._changed(address, content, redelivered)
        self._drops = changed is None
        if changed is None:
            self._dropped += 1
            if not self.no_ack:
                self.client.ack(tag, False)
            return
        number = tag - self._dropped
        if self._dropped and not self.no_ack:
            self._tags[number] = int(tag)
        self.note_forwarded(number)
        self.owner.on_message(number, address, changed, has_pieces, traits)

    def note_forwarded(self, number: i64) -> None:
        """Note a message that is passed on; a subclass may count them."""

    def on_piece(self, frames: bytes, size: i64) -> None:
        """Pass on a part of a large body."""
        self._missing -= size
        if not self._closing and not self._drops:
            self.owner.on_piece(frames, self._missing == 0)

    def settle(self, number: i64, multiple: bool) -> None:
        """Acknowledge a message, or all messages up to this one."""
        tag = self._tags.pop(number, number)
        while multiple and self._tags:
            first = next(iter(self._tags))
            if first > number:
                break
            del self._tags[first]
        self.client.ack(tag, multiple)

    def return_refused(self, runs: list[Run]) -> None:
        """Return refused messages to the upstream's queue."""
        for first, last in runs:
            for number in range(first, last + 1):
                self.client.requeue(self._tags.pop(number, number), False)

    def give_up(self) -> None:
        """Delete the objects of the link at the upstream, if the link has any."""

    def _changed(self, address: bytes, content: bytes, redelivered: bool) -> bytes | None:
        """Return a content with its new header; None: the message must not be forwarded.

        Headers whose borders cannot be found are replaced: no consumer could read them either. Other headers
        are not decoded, so a value that does not decode passes.
        """
        properties = Properties(content)
        try:
            fields = properties.fields()
        except ProtocolError:
            fields = []
        changed = self.federate(fields, decoded_header(fields), address, redelivered)
        if changed is None:
            return None
        properties.set_fields(changed)
        if not self.upstream.trusts_user_id:
            properties.drop(USER_ID)
        return properties.content()

    def federate(
        self, fields: list[Field], received: object, address: bytes, redelivered: bool
    ) -> list[Field] | None:
        """Return the headers of a forwarded message; None: the message must not be forwarded.

        `received`: the decoded value of the header of federation, None without one.
        """
        raise NotImplementedError

    def note_running(self) -> None:
        """Note that the set-up has ended."""
        self.expect_success()
        self.note_ready()
        self.owner.on_source_ready(0)


def with_entry(fields: list[Field], entry: bytes, received: bytes) -> list[Field]:
    """Return headers with the header of federation: a new entry, then the `received` ones, all encoded."""
    entries = entry + received
    return [field for field in fields if field[0] != HEADER] + [
        (HEADER, b"A" + len(entries).to_bytes(4, "big") + entries)
    ]


def decoded_header(fields: list[Field]) -> object:
    """Return the decoded value of the header of federation, None without one that decodes."""
    for name, value in fields:
        if name == HEADER:
            entry = bytes([len(name)]) + name + value
            try:
                return Reader(len(entry).to_bytes(4, "big") + entry).table().get(RECEIVED_FROM)
            except ValueError:
                return None
    return None


def received_entries(fields: list[Field]) -> bytes:
    """Return the encoded entries of the header of federation; none for a value that is no array."""
    for name, value in fields:
        if name == HEADER and value[:1] == b"A":
            return value[5:]
    return b""
