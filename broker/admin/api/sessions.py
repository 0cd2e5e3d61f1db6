"""Sessions and links of AMQP 1.0, and how the API tells about them. [RabbitMQ connections/NAME/sessions]"""

from typing import Any

from broker.adapters.amqp10.connection import Connection10
from broker.adapters.amqp10.coordinator import CoordinatorLink
from broker.adapters.amqp10.receive import IncomingLink
from broker.adapters.amqp10.send import OutgoingLink
from broker.adapters.amqp10.session import Session10
from broker.adapters.amqp10.state import Session10State

Shown = dict[str, Any]

BOUNDLESS = 2147483647


def sessions_of(connection: Connection10) -> list[Session10]:
    """The sessions that a connection has begun."""
    return connection.mapped.all()


def session_name(session: Session10State) -> str:
    """The connection's name and the session's channel."""
    return f"{session.peer.origin.name} ({session.channel})"


def session_details(session: Session10State) -> Shown:
    """A session, where something else is told of."""
    origin = session.peer.origin
    return {
        "name": session_name(session),
        "number": int(session.channel),
        "connection_name": origin.name,
        "user": session.peer.user,
        "peer_host": origin.address,
        "peer_port": origin.port,
    }


def shown_session(session: Session10) -> Shown:
    """One session with its links."""
    links = [link for link in session.links.values() if not link.leaving]
    return {
        "channel_number": int(session.channel),
        "handle_max": int(session.handle_max),
        "next_incoming_id": int(session.incoming.next_id),
        "incoming_window": int(session.incoming.left),
        "next_outgoing_id": int(session.outgoing.next_id),
        "remote_incoming_window": int(session.outgoing.left),
        "remote_outgoing_window": BOUNDLESS,
        "outgoing_unsettled_deliveries": int(session.unsettled.count()),
        "incoming_links": [
            _incoming(link) for link in links if isinstance(link, IncomingLink | CoordinatorLink)
        ],
        "outgoing_links": [_outgoing(link) for link in links if isinstance(link, OutgoingLink)],
    }


def _incoming(link: IncomingLink | CoordinatorLink) -> Shown:
    shown = {
        "handle": int(link.handle),
        "link_name": link.name,
        "credit": int(link.credit.left),
        "delivery_count": int(link.credit.delivery_count),
    }
    if isinstance(link, CoordinatorLink):
        return shown | {"target": "coordinator", "transactions": int(link.open_count)}
    return shown | {
        "target_exchange": link.exchange,
        "target_routing_key": link.key,
        "snd_settle_mode": ("unsettled", "settled", "mixed")[link.mode],
        "max_message_size": int(link.size_max),
        "unconfirmed_messages": int(link.unanswered),
    }


def _outgoing(link: OutgoingLink) -> Shown:
    return {
        "handle": int(link.handle),
        "link_name": link.name,
        "queue_name": ", ".join(queue.name for queue in link.consumed()),
        "send_settled": link.settled,
        "max_message_size": int(link.size_max),
        "credit": int(link.credit.left),
        "delivery_count": int(link.credit.delivery_count),
    }
