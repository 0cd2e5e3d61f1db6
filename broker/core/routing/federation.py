"""The exchange that a downstream broker declares for its federation link, and the cut of cycles. [RabbitMQ]

A federated message has a header with an entry for each broker that it has passed. The exchange passes on only
messages that the downstream broker would take, so no other messages wait in the link's queue.
"""

from __future__ import annotations

from typing import Final, final

from mypy_extensions import i64

from broker.core.errors import PreconditionFailed
from broker.core.message_view import MessageView
from broker.core.routing.graph import Binding, Description, Destinations, Exchange, Resolution
from broker.core.values import show

FEDERATION_UPSTREAM_KIND: Final = "x-federation-upstream"
MAX_HOPS: Final = "x-max-hops"
DOWNSTREAM_NAME: Final = "x-downstream-name"
DOWNSTREAM_VHOST: Final = "x-downstream-vhost"
INTERNAL_PURPOSE: Final = "x-internal-purpose"
"""The argument of queues and exchanges that belong to a federation link; its value is `federation`."""

RECEIVED_FROM: Final = "x-received-from"
"""The header with a table for each broker that a message has passed, the last one first."""

BOUND_FROM: Final = "x-bound-from"
"""The argument with a table for each broker from which a binding has come, the last one first."""


def has_passed(entries: object, cluster: str, vhost: str) -> bool:
    """Whether one of the entries names this broker and virtual host. `entries`: of either header."""
    if not isinstance(entries, list):
        return False
    for entry in entries:
        if isinstance(entry, dict) and entry.get("cluster-name") == cluster and entry.get("vhost") == vhost:
            return True
    return False


def may_forward(received: object, max_hops: int, cluster: str, vhost: str) -> bool:
    """Whether a message may be forwarded to a broker and virtual host.

    `received`: the value of the header `x-received-from`. A message passes at most `max_hops` links, and
    never returns to a broker and virtual host that it has passed. A value that is no array counts as none.
    """
    if not isinstance(received, list):
        return True
    return len(received) < max_hops and not has_passed(received, cluster, vhost)


@final
class FederationUpstreamExchange(Exchange):
    """An exchange that passes to all destinations the messages that its downstream broker would take.

    Raises:
        PreconditionFailed: `x-max-hops` is missing or no positive integer.
    """

    def __init__(self, described: Description) -> None:
        super().__init__(described)
        hops = described.arguments.get(MAX_HOPS)
        if not isinstance(hops, int) or isinstance(hops, bool) or hops < 1:
            raise PreconditionFailed(
                f"argument '{MAX_HOPS}' of exchange '{described.name}' is '{show(hops)}', "
                "expected an integer of at least 1"
            )
        self._max_hops: i64 = hops
        self._cluster = str(described.arguments.get(DOWNSTREAM_NAME, ""))
        self._vhost = str(described.arguments.get(DOWNSTREAM_VHOST, ""))
        self._all = Destinations()

    def match(self, keys: list[str], view: MessageView | None, resolution: Resolution) -> None:
        """Add all destinations if the downstream broker would take the message."""
        resolution.by_message = True
        if view is None:
            return
        if may_forward(view.headers().get(RECEIVED_FROM), self._max_hops, self._cluster, self._vhost):
            resolution.add_destinations(self._all, view)

    def _link(self, binding: Binding) -> None:
        self._all.add(binding)

    def _unlink(self, binding: Binding) -> None:
        self._all.remove(binding)
