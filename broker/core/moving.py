"""How committed rows leave their attempt for where they are published: a transaction for each chunk."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from broker.core.attempt import Attempt, Known, OpenRows, Row, content_of
from broker.core.entry import QueueEntry
from broker.core.message import Message
from broker.core.operation import Operation
from broker.core.route import Route
from broker.core.transaction import HeldPublish

if TYPE_CHECKING:
    from broker.core.vhost import VirtualHost


@final
class RowPublish(HeldPublish):
    """The publish of a row. `nowhere`: it is mandatory, and its route leads to no queue."""

    def __init__(self, route: Route, row: Row, mandatory: bool) -> None:
        super().__init__(route, row.message, row.keys, False)
        row.message.address = route.address
        self.mandatory = mandatory
        self.nowhere = False

    def resolve(self, virtual_host: VirtualHost) -> str:
        """Find out where it goes (HeldPublish)."""
        refusal = super().resolve(virtual_host)
        passage = self.passage
        if refusal or not self.mandatory or passage.queues or passage.keepers or passage.known:
            return refusal
        self.nowhere = True
        address = self.route.address
        return f"exchange '{address.exchange}' leads nowhere with routing key '{address.routing_key}'"

    def taken(self, count: i64) -> None:
        """Nobody waits for it (HeldPublish)."""


def publishes_of(
    chunk: Message,
    virtual_host: VirtualHost,
    open_rows: OpenRows,
    mandatory: bool,
    known: Known | None = None,
) -> list[RowPublish]:
    """The publishes of the rows of a stored chunk that are not `known`, in their order.

    Raises:
        NotFound, AccessRefused: an exchange is gone, or is an internal one now.
    """
    routes: dict[tuple[str, str], Route] = {}
    publishes: list[RowPublish] = []
    for row in open_rows(content_of(chunk, virtual_host), virtual_host, known):
        key = row.exchange, row.routing_key
        route = routes.get(key)
        if route is None:
            route = virtual_host.route(row.exchange, row.routing_key)
            routes[key] = route
        publishes.append(RowPublish(route, row, mandatory))
    return publishes


def objection(
    chunk: Message, virtual_host: VirtualHost, open_rows: OpenRows, mandatory: bool, known: Known
) -> str:
    """Why a row of a stored chunk could not be published for good, "" if all can. Nothing is published.

    `known`: where rows without headers can be published; this chunk adds to it.

    That a queue is full or stopped is no reason: it will pass. Raises NotFound, AccessRefused and
    PreconditionFailed: that is one.
    """
    for publish in publishes_of(chunk, virtual_host, open_rows, mandatory, known):
        refusal = publish.resolve(virtual_host)
        publish.passage.unreserve()
        if publish.nowhere:
            return refusal
        route = publish.route
        if not route.careful and not route.by_message:
            known.add((route.address.exchange, route.address.routing_key))
    return ""


@final
class Move(Operation):
    """The rows of a chunk are published, and the chunk is gone: both or neither.

    `done` is called when that is on disk, with "", or else with why it has not been done.
    """

    def __init__(
        self,
        virtual_host: VirtualHost,
        attempt: Attempt,
        entry: QueueEntry,
        publishes: list[RowPublish],
        done: Callable[[str], None],
    ) -> None:
        super().__init__(virtual_host, attempt.queue, attempt.taker)
        self.publishes.extend(publishes)
        self.remove(entry)
        self._told = done

    def committed(self) -> None:
        """It has been done (Transaction)."""
        self._told("")

    def failed(self, reason: str) -> None:
        """It has not (Transaction)."""
        self._told(f"the log has failed: {reason}")

    def _which(self, number: int, why: str) -> str:
        return why
