"""Deliveries whose outcome the sender has been told, and which it is to settle. [amqp-1.0 2.6.12, 2.8.3]"""

from __future__ import annotations

from typing import TYPE_CHECKING, final

from mypy_extensions import i64

from protocol.amqp10.serials import distance, forward

if TYPE_CHECKING:
    from broker.adapters.amqp10.incoming import IncomingLink


@final
class Halves:
    """Of one session, by their ids. There are no more of them than its links allow."""

    def __init__(self) -> None:
        self._links: dict[int, IncomingLink] = {}
        self._outcomes: dict[int, bytes] = {}

    def add(self, link: IncomingLink, first: i64, count: i64, outcome: bytes) -> None:
        """The sender has been told what became of these."""
        for _ in range(count):
            self._links[first] = link
            self._outcomes[first] = outcome
            first = forward(first, 1)

    def settle(self, first: i64, last: i64) -> i64:
        """The sender has settled those from `first` to `last`; returns how many were looked at."""
        links = self._links
        count = distance(first, last) + 1
        looked = min(count, len(links))
        if count > len(links):
            ids = [each for each in links if 0 <= distance(first, each) < count]
        else:
            ids = [int(forward(first, each)) for each in range(count)]
        for each in ids:
            link = links.pop(each, None)
            if link is not None:
                del self._outcomes[each]
                link.settled_last(each)
        return looked

    def told(self, link: IncomingLink) -> dict[int, bytes]:
        """What the sender of a link has been told, by delivery-ids, and has not settled."""
        return {each: self._outcomes[each] for each, its in self._links.items() if its is link}

    def forget(self, link: IncomingLink) -> None:
        """The link has ended."""
        for each in [each for each, its in self._links.items() if its is link]:
            del self._links[each]
            del self._outcomes[each]
