"""The pair of links to the management node: requests on one, responses on the other. [linkpair 1.0]"""

from __future__ import annotations

from collections import deque
from typing import Final, final

from mypy_extensions import i64

from broker.adapters.amqp10.assembly import IncompleteDelivery
from broker.adapters.amqp10.link import Link10, Sender, abort_delivery, send_more
from broker.adapters.amqp10.management.node import Management
from broker.adapters.amqp10.state import LinkPair, Session10State
from protocol.amqp10.conditions import PeerError
from protocol.amqp10.constructors import NONE
from protocol.amqp10.flows import Flow
from protocol.amqp10.outcomes import ACCEPTED_VALUE
from protocol.amqp10.outgoing import SplitTransfer, disposition
from protocol.amqp10.transfers import Transfer

CREDIT: Final[i64] = 100  # requests that may wait for their responses
BYTES_MAX: Final = 65536  # the size of a request; a larger request ends the link


@final
class Pair(LinkPair):
    """Two links of the same name. Either may be attached first; responses wait for their link."""

    def __init__(self, session: Session10State, name: str) -> None:
        self.name = name
        self.requests: RequestLink | None = None
        self.responses: ResponseLink | None = None
        self.waiting: deque[bytes] = deque()
        self.open: i64 = 0  # requests whose responses have not been sent
        self._session = session
        self._management = Management(session.peer, session.vhost, self._add_response)

    def handle_request(self, request: bytes) -> None:
        """Handle a request, given as the sections of its message."""
        self.open += 1
        self._management.handle_request(request)

    def on_link_ended(self) -> None:
        """End the pair if both links have ended."""
        if self.requests is None and self.responses is None:
            self._management.close()
            self.waiting.clear()
            self._session.pairs.pop(self.name, None)

    def on_response_sent(self) -> None:
        """Count a response that has been sent, and grant credit for a further request."""
        self.open -= 1
        if self.requests is not None:
            self.requests.grant_credit()

    def _add_response(self, response: bytes) -> None:
        self.waiting.append(response)
        if self.responses is not None:
            self.responses.send_waiting()
        self._session.peer.end_turn()


@final
class RequestLink(Link10):
    """The receiving end, for requests."""

    def __init__(self, session: Session10State, pair: Pair, name: str, handle: i64, count: i64) -> None:
        super().__init__(session, name, handle, True, count)
        self._pair = pair
        self._delivery = IncompleteDelivery(self.credit, BYTES_MAX)
        pair.requests = self

    def on_flow(self, flow: Flow) -> None:
        """Take the delivery-count of the client."""
        if flow.delivery_count != NONE:
            self.credit.follow(flow.delivery_count)
        if flow.echo:
            self.send_flow()

    def on_transfer(self, transfer: Transfer, data: bytes, end: i64) -> None:
        """Take a transfer of a request."""
        if self.is_detached:
            return
        delivery = self._delivery
        try:
            request = delivery.add(transfer, data, end)
        except PeerError as error:
            self.detach(error.condition, error.text)
            return
        if request is None:
            return
        if not delivery.settled:
            number, session = delivery.delivery_id, self.session
            session.peer.out.write(disposition(session.channel, True, number, number, True, ACCEPTED_VALUE))
        self._pair.handle_request(request)
        self.grant_credit()

    def grant_credit(self) -> None:
        """Grant more credit, if half is used up and there is room for more requests."""
        if not self.is_detached and self.credit.left <= CREDIT // 2 and self._pair.open <= CREDIT // 2:
            self.credit.left = CREDIT - self._pair.open
            self.send_flow()

    def send_flow(self) -> None:
        """Send the credit for requests."""
        self.session.write_flow(self.handle, self.credit.delivery_count, self.credit.left, NONE, False)

    def release_all(self, closed: bool) -> None:
        """Remove this link from the pair."""
        self._pair.requests = None
        self._pair.on_link_ended()


@final
class ResponseLink(Sender):
    """The sending end, for responses, which are sent settled, in the order of the requests."""

    def __init__(self, session: Session10State, pair: Pair, name: str, handle: i64) -> None:
        super().__init__(session, name, handle)
        self._pair = pair
        pair.responses = self

    def on_flow(self, flow: Flow) -> None:
        """Take the client's credit for responses."""
        if flow.link_credit != NONE:
            self.credit.grant(flow.delivery_count, flow.link_credit)
        self.send_waiting()
        if flow.drain and self.sending is None:
            self.credit.drain()
            self._send_flow(True)
        elif flow.echo:
            self._send_flow(False)

    def send_waiting(self) -> None:
        """Send the waiting responses, as far as the client's credit allows."""
        pair, session = self._pair, self.session
        while pair.waiting and self.sending is None and self.credit.left > 0 and not self.is_detached:
            self.credit.use()
            delivery_id = session.unsettled.skip() - 1 & 0xFFFFFFFF
            number: int = delivery_id
            tag = number.to_bytes(4, "big")
            self.sending = SplitTransfer(self.template, delivery_id, tag, True, [pair.waiting.popleft()])
            pair.on_response_sent()
            send_more(session, self)

    def continue_sending(self) -> None:
        """Send the next response, if this one has been sent."""
        if self.sending is None:
            self.send_waiting()

    def release_all(self, closed: bool) -> None:
        """Remove this link from the pair."""
        if self.sending is not None:
            abort_delivery(self.session, self)
        self._pair.responses = None
        self._pair.on_link_ended()

    def _send_flow(self, drain: bool) -> None:
        credit = self.credit
        self.session.write_flow(
            self.handle, credit.delivery_count, credit.left, len(self._pair.waiting), drain
        )


def pair_of(session: Session10State, name: str) -> Pair:
    """Return the pair of links of this name; creates the pair for its first link."""
    pair = session.pairs.get(name)
    if pair is None:
        session.pairs[name] = pair = Pair(session, name)
    assert isinstance(pair, Pair), "a session has Pairs"
    return pair
