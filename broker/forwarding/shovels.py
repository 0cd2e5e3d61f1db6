"""All shovels of a broker: each is defined by a parameter of its virtual host. [RabbitMQ dynamic shovels]"""

from __future__ import annotations

from typing import final

import structlog

from broker.core.broker import Broker
from broker.core.errors import BrokerError, NotFound, PreconditionFailed
from broker.core.queues.queue import Queue
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.definition import (
    EXACTLY_ONCE,
    NEVER,
    PAUSED,
    SHOVEL,
    Definition,
    parse_definition,
    stages_here,
)
from broker.forwarding.ends import EndHost
from broker.forwarding.line import Dialer
from broker.forwarding.shovel import ForwardingHost, Shovel
from broker.forwarding.staged import StagingHost, release_stage, staged_queue

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
                    self._begin(definition)

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
            before.stop(gives_up)
            if gives_up:
                self._release(before)
        if definition is not None:
            self._begin(definition)
        elif not is_left:
            _log.info("shovel deleted", shovel=name, vhost=vhost.name)

    def _parse(self, vhost: VirtualHost, name: str) -> Definition | None:
        try:
            return parse_definition(vhost.name, name, vhost.parameters.get(SHOVEL, name))
        except BrokerError as error:  # a later version of the broker has set it
            _log.error("shovel not started", shovel=name, vhost=vhost.name, reason=error.text)
            return None

    def _begin(self, definition: Definition) -> None:
        shovel = Shovel(definition, self._host, self._finish)
        self._shovels[definition.vhost, definition.name] = shovel
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
            shovel.stop(gives_up=True)
            self._release(shovel)

    def _release(self, shovel: Shovel) -> None:
        """Return the staged messages of a shovel that no longer exists, if it staged any."""
        if not stages_here(shovel.definition):
            return
        try:
            release_stage(self._broker, staged_queue(shovel.definition))
        except BrokerError as error:
            name, vhost = shovel.labels
            _log.error("messages of a shovel stay staged", shovel=name, vhost=vhost, reason=error.text)


def _reads(definition: Definition | None) -> tuple[str, int, str, str] | None:
    """Return the broker and the queue that a shovel reads under positions; None: it reads none."""
    if definition is None or definition.ack_mode != EXACTLY_ONCE:
        return None
    uri = definition.source.uris[0]
    return uri.host, uri.port, uri.vhost, definition.source.queue
