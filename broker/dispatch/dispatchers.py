"""The dispatchers of a broker: their definitions, which are durable, and the dispatchers at work."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

from broker.core.broker import Broker
from broker.core.errors import NotFound, PreconditionFailed
from broker.core.ports import MessageStore
from broker.dispatch.definition import DELETED, Change, Definition, TargetForbidden, definition_of_change
from broker.dispatch.dispatcher import Dispatcher, Progress, Services, objection_to
from config.targets import AllowList

Key = tuple[str, str]
"""A virtual host and a name."""


class Dispatchers:
    """All dispatchers, by virtual host and name. After the log has stopped, every change raises StoreFailed.

    `allowed`: the targets that dispatchers may call; None: the setting is not known, as in a stopped broker,
    and is checked when the broker starts. `unsupported` returns why this broker cannot call the target of a
    definition; "" if it can. Until `start` the dispatchers are only kept, and do not work.
    """

    def __init__(
        self,
        broker: Broker,
        allowed: AllowList | None,
        unsupported: Callable[[Definition], str] = lambda definition: "",
    ) -> None:
        self._broker = broker
        self._store: MessageStore = broker.store
        self._allowed = allowed
        self._unsupported = unsupported
        self._services: Services | None = None
        self._definitions: dict[Key, Definition] = {}
        self._progress: dict[Key, Progress] = {}
        self._working: dict[Key, Dispatcher] = {}
        self._retired: list[Dispatcher] = []  # with calls in progress, by earlier definitions

    def __len__(self) -> int:
        return len(self._definitions)

    # ---- definitions

    def get(self, vhost: str, name: str) -> Definition | None:
        """Return a definition; None: no dispatcher has this name."""
        return self._definitions.get((vhost, name))

    def existing(self, vhost: str, name: str) -> Definition:
        """Return a definition. Raises NotFound."""
        definition = self.get(vhost, name)
        if definition is None:
            raise NotFound(f"no dispatcher '{name}' in vhost '{vhost}'")
        return definition

    def all(self, vhost: str | None = None) -> list[Definition]:
        """Return the definitions, of one virtual host or of all, in the order of their names."""
        return [
            definition
            for key, definition in sorted(self._definitions.items())
            if vhost is None or key[0] == vhost
        ]

    def check(self, definition: Definition) -> None:
        """Check that a dispatcher may be set.

        Raises:
            TargetForbidden: the setting `dispatch_allow` does not cover the target.
            NotFound: the virtual host or the queue does not exist.
            PreconditionFailed: the queue or the broker is not fit for it.
        """
        if self._allowed is not None:
            definition.require_allowed(self._allowed)
        vhost = self._broker.vhosts.get(definition.vhost)
        if vhost is None:
            raise NotFound(f"no vhost '{definition.vhost}'")
        queue = vhost.topology.queues.get(definition.queue)
        if queue is None:
            raise NotFound(f"{definition.where}: no queue '{definition.queue}' in vhost '{definition.vhost}'")
        objection = objection_to(queue) or self._unsupported(definition)
        if objection:
            raise PreconditionFailed(f"{definition.where}: {objection}")

    def trial_for(self, broker: Broker) -> Dispatchers:
        """Return an empty collection for a trial copy of the broker, with the same checks."""
        return Dispatchers(broker, self._allowed, self._unsupported)

    def set(self, definition: Definition) -> None:
        """Set a dispatcher, or replace its definition; the calls in progress end by the old definition.

        Raises the errors of `check`, and StoreFailed.
        """
        self.check(definition)
        if self.get(definition.vhost, definition.name) != definition:
            self._replace(definition)

    def pause(self, vhost: str, name: str, paused: bool) -> None:
        """Pause a dispatcher, or resume it. Raises NotFound, StoreFailed."""
        definition = self.existing(vhost, name)
        if definition.paused != paused:
            self._replace(definition.with_paused(paused))

    def delete(self, vhost: str, name: str) -> None:
        """Delete a dispatcher; its calls in progress go on. Raises NotFound, StoreFailed."""
        definition = self.existing(vhost, name)
        self._append(definition.deletion())
        dispatcher = self._working.get((vhost, name))
        queue = None if dispatcher is None else dispatcher.queue
        self._forget((vhost, name))
        if queue is not None:
            self._broker.vhosts[vhost].declarations.delete_if_unused(queue)

    def rename_queue(self, vhost: str, old: str, new: str) -> None:
        """Keep the dispatchers of a renamed queue, which remain attached. Raises StoreFailed."""
        for definition in self.all(vhost):
            if definition.queue == old:
                renamed = definition.with_queue(new)
                self._append(renamed.change())
                key = (vhost, definition.name)
                self._definitions[key] = renamed
                if key in self._working:
                    self._working[key].definition = renamed

    def forget_vhost(self, vhost: str) -> None:
        """Delete the dispatchers of a virtual host, which is about to be deleted. Raises StoreFailed."""
        for definition in self.all(vhost):
            self.delete(vhost, definition.name)

    def _replace(self, definition: Definition) -> None:
        self._append(definition.change())
        key = (definition.vhost, definition.name)
        self._definitions[key] = definition
        if self._services is not None:
            self._retire(key)
            self._start(key, definition, self._services)

    def _append(self, change: Change) -> None:
        """Append a change before it takes effect: a change that cannot be stored must not take effect."""
        self._store.require()
        self._store.append_definition(change)

    def _forget(self, key: Key) -> None:
        self._retire(key)
        self._definitions.pop(key, None)
        self._progress.pop(key, None)

    # ---- the log

    def apply(self, change: Change) -> None:
        """Apply one change from the log. Raises ValueError."""
        if change.get("kind") == DELETED:
            self._definitions.pop((str(change.get("vhost")), str(change.get("name"))), None)
            return
        definition = definition_of_change(change)
        self._definitions[definition.vhost, definition.name] = definition

    def describe(self) -> Iterator[list[Change]]:
        """Yield the changes that recreate the dispatchers; see `Broker.describe`."""
        for key in list(self._definitions):
            definition = self._definitions.get(key)
            yield [] if definition is None else [definition.change()]

    # ---- work

    def start(self, services: Services) -> None:
        """Start all dispatchers that are not paused, after recovery."""
        self._services = services
        for key, definition in self._definitions.items():
            self._start(key, definition, services)

    def status(self, definition: Definition) -> dict[str, Any]:
        """Return the state and the counts of a dispatcher as JSON."""
        dispatcher = self._working.get((definition.vhost, definition.name))
        return {} if dispatcher is None else dispatcher.status()

    def working(self) -> list[Dispatcher]:
        """Return the dispatchers, paused ones included."""
        return [self._working[key] for key in sorted(self._working)]

    def retire_all(self) -> None:
        """Let no dispatcher begin a call any more: the broker stops. Calls in progress go on."""
        for key in list(self._working):
            self._retire(key)
        self._services = None

    def abort_all(self) -> None:
        """Break off all calls in progress, and requeue their messages."""
        self.retire_all()
        for dispatcher in self._retired:
            dispatcher.abort()
        self._retired.clear()

    def _start(self, key: Key, definition: Definition, services: Services) -> None:
        progress = self._progress.setdefault(key, Progress())
        dispatcher = self._working[key] = Dispatcher(definition, services, progress)
        dispatcher.start(self._objection(definition))

    def _objection(self, definition: Definition) -> str:
        """Return why a target must not, or cannot, be called; settings may have changed with the start."""
        try:
            if self._allowed is not None:
                definition.require_allowed(self._allowed)
        except TargetForbidden as error:
            return error.text
        return self._unsupported(definition)

    def _retire(self, key: Key) -> None:
        dispatcher = self._working.pop(key, None)
        if dispatcher is not None:
            dispatcher.retire()
            self._retired = [each for each in self._retired if each.calls]
            if dispatcher.calls:
                self._retired.append(dispatcher)
