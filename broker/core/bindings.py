"""The bindings of a virtual host by what they lead to."""

from __future__ import annotations

from typing import final

from broker.core.binding import Binding, Parallel
from broker.core.exchange import Exchange
from broker.core.queue import Queue


@final
class Bindings:
    """Knows each binding from both ends: its source has it in `outgoing`, and here it is by its destination.

    Both share one dict of the bindings between the same two.
    """

    def __init__(self) -> None:
        self._leading: dict[Queue | Exchange, dict[Exchange, Parallel]] = {}

    def to(self, destination: Queue | Exchange) -> list[Binding]:
        """The bindings that lead to a queue or exchange, without the one of the default exchange."""
        found: list[Binding] = []
        for parallel in self._leading.get(destination, {}).values():
            found.extend(parallel.values())
        return found

    def add(self, binding: Binding) -> bool:
        """Add a binding between what is there; False: it is there already."""
        source = binding.source
        destination = binding.destination
        parallel = source.outgoing.get(destination)
        if parallel is None:
            parallel = {}
            source.outgoing[destination] = parallel
            self._leading.setdefault(destination, {})[source] = parallel
        elif binding.key in parallel:
            return False
        parallel[binding.key] = binding
        source.link(binding)
        source.changed()
        return True

    def remove(self, binding: Binding) -> None:
        """Remove a binding that is there."""
        source = binding.source
        destination = binding.destination
        parallel = source.outgoing[destination]
        del parallel[binding.key]
        if not parallel:
            del source.outgoing[destination]
            sources = self._leading[destination]
            del sources[source]
            if not sources:
                del self._leading[destination]
        source.unlink(binding)
        source.changed()

    def renamed(self, queue: Queue) -> None:
        """A queue has another name."""
        for source in self._leading.get(queue, {}):
            source.changed()
