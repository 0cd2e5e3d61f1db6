"""One connection per container, for those who ask for it. [sole connection enforcement 1.0]"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from broker.adapters.served import ServedConnection
from protocol.amqp10.conditions import INVALID_FIELD, RESOURCE_LOCKED, PeerError
from protocol.amqp10.performatives import Open
from protocol.amqp10.types import Symbol

if TYPE_CHECKING:
    from broker.adapters.amqp10.connection import Connection10

CAPABILITY: Final = "sole-connection-for-container"
ENFORCEMENT: Final = "sole-connection-enforcement-policy"
DETECTION: Final = "sole-connection-detection-policy"
REFUSE: Final = 0
CLOSE_EXISTING: Final = 1
STRONG: Final = 0
WEAK: Final = 1


def enforce(connection: Connection10, peer: Open) -> None:
    """Have a connection be the only one of its container if it asks for that, or refuse it.

    Raises PeerError. By weak detection only those count that have asked for the same.
    """
    if CAPABILITY not in peer.desired_capabilities:
        return
    policy = _choice(peer, ENFORCEMENT, CLOSE_EXISTING)
    weak = _choice(peer, DETECTION, WEAK) == WEAK
    for other in connection.server.connections.in_vhost(connection.rights.vhost):
        if not isinstance(other, ServedConnection) or not other.is_open():
            continue
        if other.user != connection.user or other.container != connection.container:
            continue
        if weak and not other.sole:
            continue
        if policy == REFUSE:
            text = f"container '{connection.container}' has a connection already"
            raise PeerError(INVALID_FIELD, text, {Symbol("invalid-field"): Symbol("container-id")})
        text = "another connection of the container has taken its place"
        other.give_place(RESOURCE_LOCKED, text, {Symbol("sole-connection-enforcement"): True})
    connection.sole = True


def _choice(peer: Open, name: str, most: int) -> int:
    """A policy that the peer names; 0 if it names none. Raises PeerError."""
    value = None if peer.properties is None else peer.properties.get(name)
    if value is None:
        return 0
    if not isinstance(value, int) or isinstance(value, bool) or not 0 <= value <= most:
        raise PeerError(INVALID_FIELD, f"{name} is {value!s}, not 0 to {most}")
    return value
