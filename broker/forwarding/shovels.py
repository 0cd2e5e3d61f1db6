"""All shovels of a broker: each is defined by a parameter of its virtual host. [RabbitMQ dynamic shovels]"""

from __future__ import annotations

from typing import final

import structlog

from broker.core.broker import CLUSTER_NAME, Broker
from broker.core.errors import BrokerError, NotFound, PreconditionFailed
from broker.core.vhosts.vhost import VirtualHost
from broker.forwarding.definition import EXACTLY_ONCE, NEVER, PAUSED, SHOVEL, parse_definition
from broker.forwarding.ends import EndHost
from broker.forwarding.line import Dialer
from broker.forwarding.shovel import ForwardingHost, Shovel
from broker.forwarding.staged import StagingHost, release_stage

_log = structlog.get_logger("amqpd.forwarding")


@final
class Shovels:
    """The shovels of a broker, by virtual host and name. They run from `start` to `stop`.

    `node`: the name of this broker, unless the global parameter `cluster_name` has another one.
    """

    def __init__(self, broker: Broker, dialer: Dialer, version: str, node: str, staging: StagingHost) -> None:
        self._broker = broker
        self._node = node
        self._staging = staging
        ends = EndHost(dialer, broker.schedule, version, staging.conversions, self._cluster_name)
        self._host = ForwardingHost(ends, staging)
        self._shovels: dict[tuple[str, str], Shovel] = {}
        self._runs = False
        broker.parameter_watchers.append(self._on_parameter)
        broker.leaving.append(self._forget_vhost)

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

    def start(self, origin: str) -> None:
        """Start the shovels of all parameters: the broker serves clients now.

        `origin`: the name of this broker in the headers of messages, which no other broker has.
        """
        self._runs = True
        self._staging.origin = origin
        for vhost in list(self._broker.vhosts.values()):
            for _, name, _ in vhost.parameters.items(SHOVEL):
                self._begin(vhost, name)

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
        if before is not None:
            before.stop()
        if vhost.parameters.has(SHOVEL, name):
            self._begin(vhost, name)
        else:
            _log.info("shovel deleted", shovel=name, vhost=vhost.name)
        after = self._shovels.get((vhost.name, name))
        if before is not None and _staged_queue(before) != _staged_queue(after):
            self._release(before)

    def _begin(self, vhost: VirtualHost, name: str) -> None:
        try:
            definition = parse_definition(vhost.name, name, vhost.parameters.get(SHOVEL, name))
        except BrokerError as error:  # a later version of the broker has set it
            _log.error("shovel not started", shovel=name, vhost=vhost.name, reason=error.text)
            return
        shovel = Shovel(definition, self._host, self._finish)
        self._shovels[vhost.name, name] = shovel
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
            shovel.stop()
            self._release(shovel)

    def _release(self, shovel: Shovel) -> None:
        """Return the staged messages of a shovel that no longer exists, if it staged any."""
        if _staged_queue(shovel) is None:
            return
        try:
            release_stage(self._broker, shovel.definition)
        except BrokerError as error:
            name, vhost = shovel.labels
            _log.error("messages of a shovel stay staged", shovel=name, vhost=vhost, reason=error.text)

    def _cluster_name(self) -> str:
        name = self._broker.parameters.get(CLUSTER_NAME)
        return name if isinstance(name, str) else self._node


def _staged_queue(shovel: Shovel | None) -> tuple[str, str] | None:
    """Return the virtual host and the queue that a shovel stages; None: it stages none."""
    if shovel is None or shovel.definition.ack_mode != EXACTLY_ONCE:
        return None
    source = shovel.definition.source
    return source.uris[0].vhost, source.queue
