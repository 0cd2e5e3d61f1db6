"""The limits of a virtual host, under RabbitMQ's names. [RabbitMQ vhost limits]"""

from collections.abc import Mapping
from typing import Final

from broker.core.broker import Broker
from broker.core.vhosts.vhost import VirtualHost

MAX_CONNECTIONS: Final = "max-connections"
MAX_QUEUES: Final = "max-queues"
LIMITS_OF_VHOSTS: Final = (MAX_CONNECTIONS, MAX_QUEUES)

LIMITS_COMPONENT: Final = "vhost-limits"
LIMITS_PARAMETER: Final = "limits"
"""Among the parameters of a virtual host its limits are the one of this name, of that component."""


def vhost_limits(vhost: VirtualHost) -> dict[str, int]:
    """The limits that are set."""
    both = ((MAX_CONNECTIONS, vhost.connections_max), (MAX_QUEUES, vhost.queues_max))
    return {name: limit for name, limit in both if limit is not None}


def set_vhost_limits(broker: Broker, vhost: VirtualHost, limits: Mapping[str, int]) -> None:
    """Replace the limits, unless they are these; negative ones are none. Raises what the core raises."""
    wanted = {name: limit for name, limit in limits.items() if limit >= 0}
    if wanted != vhost_limits(vhost):
        broker.limit_vhost(vhost.name, wanted.get(MAX_CONNECTIONS), wanted.get(MAX_QUEUES))
