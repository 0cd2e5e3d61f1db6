"""All shovels of a broker: each is defined by a parameter of its virtual host. [RabbitMQ dynamic shovels]"""

from __future__ import annotations

from typing import final

import structlog
from mypy_extensions import i64

from broker.core.broker import Broker
from broker.core.delivery import journal as events
from broker.core.errors import BrokerError, NotFound, PreconditionFailed
from broker.core.operators.stage import Stage
from broker.core.queues.queue import Queue
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.definition import (
    EXACTLY_ONCE,
    NEVER,
    PAUSED,
    SHOVEL,
    Definition,
    parse_definition,
    receipt_definition,
    stages_here,
)
from broker.forwarding.ends import EndHost
from broker.forwarding.line import Dialer
from broker.forwarding.shovel import ForwardingHost, Shovel
from broker.forwarding.staged import StagingHost, owner_in, staged_queue

_log = structlog.get_logger("amqpd.forwarding")


@final
class Shovels:
    """The shovels of a broker, by virtual host and name. They run from `start` to `stop`."""

    def __init__(self, broker: Broker, dialer: Dialer, version: str, staging: StagingHost) -> None:
        self._broker = broker
        ends = EndHost(dialer, broker.schedule, version, staging.conversions, lambda: broker.cluster_name)
        self._host = ForwardingHost(ends, staging)
        self._shovels: dict[tuple[str, str], Shovel] = {}
        self._runs = False
        broker.parameter_watchers.append(self._on_parameter)
        broker.leaving.append(self._forget_vhost)
        broker.reader_finders.insert(0, self._readers_of)

    def _readers_of(self, queue: Queue) -> list[str]:
        """Return the shovels that stage a queue, also those that have not begun to, for people."""
        return [
            definition.where
            for definition in (shovel.definition for shovel in self._shovels.values())
            if stages_here(definition)
            and (definition.source.uris[0].vhost, definition.source.queue) == (queue.vhost, queue.name)
        ]

    def all(self) -> list[Shovel]:
        """Return all shovels."""
        return list(self._shovels.values())

    def existing(self, vhost: str, name: str) -> Shovel:
        """Return a shovel. Raises NotFound."""
        shovel = self._shovels.get((vhost, name))
        if shovel is None:
            raise NotFound(f"no shovel '{name}' in vhost '{vhost}'")
        return shovel

    def set_paused(self, vhost: str, name: str, paused: bool) -> None:
        """Pause a shovel, or resume it; a restart of the broker does not change this.

        Raises:
            NotFound: there is no such shovel.
            PreconditionFailed: the shovel counts its messages, and would begin to count again.
            StoreFailed: the log has stopped.
        """
        shovel = self.existing(vhost, name)
        if shovel.definition.source.delete_after != NEVER:
            raise PreconditionFailed(
                f"{shovel.definition.where} counts its messages ('src-delete-after') and would count anew: "
                "it can be neither paused nor resumed"
            )
        parameters = self._broker.vhosts[vhost].parameters
        value = parameters.get(SHOVEL, name)
        assert isinstance(value, dict), "the value has been checked"
        others = {field: each for field, each in value.items() if field != PAUSED}
        parameters.set(SHOVEL, name, {**others, PAUSED: True} if paused else others)

    def start(self) -> None:
        """Start the shovels of all parameters: the broker serves clients now."""
        self._runs = True
        for vhost in list(self._broker.vhosts.values()):
            for _, name, _ in vhost.parameters.items(SHOVEL):
                definition = self._parse(vhost, name)
                if definition is not None:
                    self._begin(definition, events.STARTED)
        self._sweep()

    def stop(self) -> None:
        """Stop all shovels: the broker stops."""
        self._runs = False
        for shovel in self.all():
            shovel.stop()

    def _on_parameter(self, vhost: VirtualHost, component: str, name: str) -> None:
        """Start, replace or stop the shovel of a parameter that has changed."""
        if component != SHOVEL or not self._runs:
            return
        before = self._shovels.pop((vhost.name, name), None)
        is_left = vhost.parameters.has(SHOVEL, name)
        definition = self._parse(vhost, name) if is_left else None
        if before is not None:
            gives_up = _reads(before.definition) != _reads(definition)
            before.stop(gives_up, _end_of(before.definition, definition) if is_left else events.DELETED)
            if gives_up:
                self._release(before)
        if definition is not None:
            was_paused = before is not None and before.definition.paused
            self._begin(definition, events.RESUMED if was_paused else events.STARTED)
        elif not is_left:
            _log.info("shovel deleted", shovel=name, vhost=vhost.name)

    def _parse(self, vhost: VirtualHost, name: str) -> Definition | None:
        try:
            return parse_definition(vhost.name, name, vhost.parameters.get(SHOVEL, name))
        except BrokerError as error:  # a later version of the broker has set it
            _log.error("shovel not started", shovel=name, vhost=vhost.name, reason=error.text)
            return None

    def _begin(self, definition: Definition, event: i64) -> None:
        """Start a shovel. `event`: for the journal; a paused shovel does not start."""
        shovel = Shovel(definition, self._host, self._finish)
        self._shovels[definition.vhost, definition.name] = shovel
        if not definition.paused:
            shovel.record(event)
            if definition.destination.receipt_queue:
                back = Shovel(receipt_definition(definition), self._host, _note_finished)
                back.kind = "return of receipts"
                shovel.receipts = back
                back.record(event)
                back.start()
        shovel.start()

    def _finish(self, shovel: Shovel) -> None:
        """Delete a shovel whose work is done, with its parameter."""
        definition = shovel.definition
        vhost = self._broker.vhosts.get(definition.vhost)
        if vhost is None or self._shovels.get((definition.vhost, definition.name)) is not shovel:
            return
        try:
            vhost.parameters.delete(SHOVEL, definition.name)
        except BrokerError as error:  # the log has stopped: the shovel stays, and would begin anew
            _log.error(
                "finished shovel not deleted", shovel=definition.name, vhost=vhost.name, reason=error.text
            )

    def _forget_vhost(self, name: str) -> None:
        for key in [key for key in self._shovels if key[0] == name]:
            shovel = self._shovels.pop(key)
            shovel.stop(True, events.DELETED)
            self._release(shovel)

    def _release(self, shovel: Shovel) -> None:
        """Return the staged messages of a shovel that no longer exists, if it staged any."""
        if stages_here(shovel.definition):
            self._host.staging.releases.release_reader(staged_queue(shovel.definition))

    def _sweep(self) -> None:
        """Return the staged messages of shovels that no longer exist: a crash has ended their release.

        A shovel that cannot be started, because a later version of the broker has set it, keeps its stage.
        """
        for stage in self._broker.staging.all():
            owner = owner_in(stage.reader)
            if owner is None or self._owns(owner, stage):
                continue
            _log.warning(
                "messages were staged for a shovel that does not exist",
                shovel=owner[1],
                vhost=owner[0],
                queue=stage.queue.name,
            )
            self._host.staging.releases.release(stage)

    def _owns(self, owner: tuple[str, str], stage: Stage) -> bool:
        """Whether a shovel reads a stage, or cannot be started."""
        vhost = self._broker.vhosts.get(owner[0])
        if vhost is None or not vhost.parameters.has(SHOVEL, owner[1]):
            return False
        shovel = self._shovels.get(owner)
        if shovel is None:
            return True
        if not stages_here(shovel.definition):
            return False
        staged = staged_queue(shovel.definition)
        return (staged.vhost, staged.name) == (stage.queue.vhost, stage.queue.name)


def _reads(definition: Definition | None) -> tuple[str, int, str, str] | None:
    """Return the broker and the queue that a shovel reads under positions; None: it reads none."""
    if definition is None or definition.ack_mode != EXACTLY_ONCE:
        return None
    uri = definition.source.uris[0]
    return uri.host, uri.port, uri.vhost, definition.source.queue


def _end_of(before: Definition, after: Definition | None) -> int:
    """Return the event of the journal for the end of a shovel that another definition replaces."""
    pauses = after is not None and after.paused and not before.paused
    return events.PAUSED if pauses else events.SHUT


def _note_finished(back: Shovel) -> None:
    """Do nothing: a way back of receipts does not count its messages, so it never finishes."""
