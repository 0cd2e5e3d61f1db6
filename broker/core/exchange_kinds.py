"""The kinds of exchanges by their names: a new kind is one entry here."""

from __future__ import annotations

from typing import Final

from broker.core.choosing import (
    CONSISTENT_HASH,
    LOCAL_RANDOM,
    MODULUS_HASH,
    RANDOM,
    ConsistentHashExchange,
    LocalRandomExchange,
    ModulusHashExchange,
    RandomExchange,
)
from broker.core.delayed import DELAYED, DelayedExchange
from broker.core.errors import PreconditionFailed
from broker.core.exchange import (
    DIRECT,
    FANOUT,
    HEADERS,
    TOPIC,
    Description,
    DirectExchange,
    Exchange,
    FanoutExchange,
    HeadersExchange,
    TopicExchange,
)
from broker.core.recent_history import RECENT_HISTORY, RecentHistoryExchange

KINDS: Final[dict[str, type[Exchange]]] = {
    DIRECT: DirectExchange,
    FANOUT: FanoutExchange,
    TOPIC: TopicExchange,
    HEADERS: HeadersExchange,
    CONSISTENT_HASH: ConsistentHashExchange,
    MODULUS_HASH: ModulusHashExchange,
    RANDOM: RandomExchange,
    LOCAL_RANDOM: LocalRandomExchange,
    RECENT_HISTORY: RecentHistoryExchange,
    DELAYED: DelayedExchange,
}


def new_exchange(
    name: str, kind: str, durable: bool, auto_delete: bool, internal: bool, arguments: dict[str, object]
) -> Exchange:
    """Make an exchange of a kind.

    Raises:
        PreconditionFailed: there is no such kind, or an argument is none that the kind can have.
    """
    check_kind(kind)
    return KINDS[kind](Description(name, kind, durable, auto_delete, internal, arguments))


def check_kind(kind: str) -> None:
    """Check the name of a kind before anything else is looked at.

    Raises:
        PreconditionFailed: there is no such kind.
    """
    if kind not in KINDS:
        raise PreconditionFailed(f"unknown exchange type '{kind}'")
