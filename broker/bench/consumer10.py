"""A consumer over AMQP 1.0: links with credit; it settles as the plan says. [amqp-1.0 2.6, 2.7]"""

import struct
from time import monotonic_ns
from typing import Final

from broker.bench.client10 import CHANNEL, ID_MASK, NO_CREDIT_BOUND, WINDOW, Client10
from broker.bench.connection import BenchError
from broker.bench.flow import Flow
from broker.bench.plan import STAMP_BYTES, Plan
from broker.bench.receipts import Receipts
from protocol.amqp10.addresses import queue_address
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.constructors import NONE
from protocol.amqp10.descriptors import DATA
from protocol.amqp10.outcomes import ACCEPTED_VALUE
from protocol.amqp10.outgoing import disposition, flow
from protocol.amqp10.performatives import Attach
from protocol.amqp10.sections import scan
from protocol.amqp10.transfers import Transfer

_ACCEPTED: Final = disposition(CHANNEL, True, 0, 0, True, ACCEPTED_VALUE)
_FIRST_AT: Final = 16  # where in it the first delivery-id is, with its constructor before it
_FIRST_LAST: Final = struct.Struct(">IBI")
_UINT_HEAD: Final = struct.Struct(">BI")
_TRANSFER: Final = b"\x00\x53\x14"
_UINT: Final = 0x70
_MARK_BYTES: Final = 16  # of a frame: header, performative and handle
GROUPS_MAX: Final = 65536  # that one read can fill
_TAIL_BYTES: Final = 8  # of the body
_DATA_HEAD_BYTES: Final = 8  # of a data section of more than 255 bytes, as the bench's are


class _Link:
    """One queue's: what it has received, and how many deliveries more it allows."""

    def __init__(self) -> None:
        self.received = 0
        self.credit = 0


class Consumer10(Client10):
    """Consumes from its queues over links of one session."""

    def __init__(self, plan: Plan, flow: Flow, queues: list[str]) -> None:
        super().__init__()
        self.receipts = Receipts(plan, flow, 0, ID_MASK)
        self._plan = plan
        self._run_flow = flow
        self._queues = queues
        self._links = [_Link() for _ in queues]
        self._link = self._links[0]  # of the delivery that was taken apart last: others like it are its
        self._credit = plan.prefetch or NO_CREDIT_BOUND
        self._settled = 0  # every delivery before it
        self._incoming = 0  # transfers
        self._transfer = Transfer()

    async def start(self) -> None:
        """Attach a link to every queue and give it credit (Consumer)."""
        for handle, queue in enumerate(self._queues):
            attach = Attach(
                name=f"bench-{handle:05d}",
                handle=handle,
                role=True,
                snd_settle_mode=1 if self._plan.auto_ack else 0,
                source=Source(address=queue_address(queue)),
                target=Target(),
            )
            await self.attach(attach)
        self._replenish()

    def finish(self) -> None:
        """Settle what waits for its group of `ack_every` to fill (Consumer)."""
        following = self.receipts.following
        if not self._plan.auto_ack and self._settled < following:
            self._settle([(self._settled, following - 1)])

    def failed(self) -> None:
        """End the run (Connection)."""
        self._run_flow.settled.set()

    def transfers(self, start: int, end: int) -> int:
        """Take all deliveries that are complete (Client10)."""
        now = monotonic_ns()
        place, count = start, 0
        while True:
            after, more = self.receipts.walk(self._buffer, place, end, now)
            self._take_up(more, more)
            count += more
            if after == place:
                after = self._take_apart(place, end, now)
                count += after > place
            if after == place or not self._transfer_at(after, end):
                break
            place = after
        if count:
            if not self._plan.auto_ack:
                self._settle_groups()
            self._replenish()
            self._run_flow.took(count, now)
        return after

    def _take_up(self, deliveries: int, transfers: int) -> None:
        """Count what has come on the link."""
        link = self._link
        link.received += deliveries
        link.credit -= deliveries
        self._incoming += transfers

    # -- one delivery

    def _transfer_at(self, place: int, end: int) -> bool:
        """Whether a transfer begins at `place`, and its head is complete."""
        return end - place > _MARK_BYTES and self._buffer[place + 8 : place + 11] == _TRANSFER

    def _take_apart(self, start: int, end: int, now: int) -> int:
        """Take one delivery frame by frame; return where it ends, or `start` if it is not complete."""
        transfer, place = self._transfer, start
        pieces: list[bytes] = []
        more, number, handle = True, NONE, NONE
        while more:
            if not self._transfer_at(place, end):
                return start
            size, words = struct.unpack_from(">IB", self._buffer, place)
            if place + size > end:
                return start
            data = bytes(self._buffer[place + words * 4 : place + size])
            transfer.read(data, 0, len(data))
            if not pieces:
                number, handle = transfer.delivery_id, transfer.handle
            if transfer.handle != handle or transfer.delivery_id not in (number, NONE):
                raise BenchError(f"a transfer of delivery {transfer.delivery_id} inside delivery {number}")
            pieces.append(data[transfer.payload :])
            more = transfer.more
            place += size
        if not 0 <= handle < len(self._links):
            raise BenchError(f"a delivery on link {handle}, which is not attached")
        self._link = self._links[handle]
        self._take_up(1, len(pieces))
        self.receipts.judge(number, self._body(b"".join(pieces)), now)
        if len(pieces) == 1:
            self._learn(start, place, number)
        return place

    def _body(self, payload: bytes) -> bytes:
        """What the data section of a message holds; b"" if that is not its only one."""
        layout = scan(payload, 0, len(payload))
        if layout.body_code != DATA or layout.body_count != 1:
            return b""
        short = payload[layout.body + 3] == 0xA0
        return payload[layout.body + (5 if short else _DATA_HEAD_BYTES) : layout.body_end]

    def _learn(self, start: int, after: int, number: int) -> None:
        """Have the shape of the delivery from `start` to `after` remembered, if it can be.

        Its delivery-id has to be encoded in four octets: a broker may encode small ones in one or none.
        """
        handle = self._links.index(self._link)
        id_at = _MARK_BYTES if handle == 0 else _MARK_BYTES + 1
        body = after - start - self._plan.size
        filler = self._plan.size - STAMP_BYTES
        tail = min(filler, _TAIL_BYTES)
        between = body - _DATA_HEAD_BYTES - id_at - 4
        encoded = _UINT_HEAD.pack(_UINT, number & ID_MASK)
        if between < 0 or handle > 255 or not self._buffer.startswith(encoded, start + id_at - 1):
            return
        shape = struct.Struct(f">{id_at}sI{between}x{_DATA_HEAD_BYTES}sQQ{filler - tail}x{tail}s")
        if shape.size == after - start:
            self.receipts.learn(shape, bytes(self._buffer[start:after]))

    # -- what is said to the broker

    def _settle_groups(self) -> None:
        """Settle the deliveries up to the last as the plan says, in one write."""
        every, following = self._plan.ack_every, self.receipts.following
        firsts = range(self._settled, following - every + 1, every)
        if len(firsts) > GROUPS_MAX:  # deliveries are not numbered as they should be
            self._settle([(self._settled, following - 1)])
        elif firsts:
            self._settle([(first, first + every - 1) for first in firsts])

    def _settle(self, ranges: list[tuple[int, int]]) -> None:
        out = bytearray(_ACCEPTED * len(ranges))
        pack = _FIRST_LAST.pack_into
        for place, (first, last) in zip(range(_FIRST_AT, len(out), len(_ACCEPTED)), ranges, strict=True):
            pack(out, place, first & ID_MASK, _UINT, last & ID_MASK)
        self._settled = ranges[-1][1] + 1
        self.write(out)

    def _replenish(self) -> None:
        """Allow more on links that have used up half of their credit; never more than is to be unsettled."""
        waiting = 0 if self._plan.auto_ack else self.receipts.following - self._settled
        credit = self._credit - waiting
        for handle, link in enumerate(self._links):
            if link.credit * 2 <= self._credit and link.credit < credit:
                link.credit = credit
                count, incoming = link.received & ID_MASK, self._incoming & ID_MASK
                said = flow(CHANNEL, incoming, WINDOW, 0, WINDOW, handle, count, credit, NONE, False, False)
                self.write(said)
