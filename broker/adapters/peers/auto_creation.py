"""Automatic creation of queues that a client names. [RabbitMQ /queue/NAME, ActiveMQ autoCreateQueues]

A policy with the key `auto-create` decides first. Otherwise some kinds of addresses always create their
queues. Last, the patterns of the setting `auto_create` decide, which are for all virtual hosts.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import final

from broker.core.arguments.queue import DEFAULT_QUEUE_TYPE
from broker.core.names import RESERVED_PREFIX
from broker.core.policies.pattern import NamePattern
from broker.core.vhosts.vhost import VirtualHost


class AutoCreateError(Exception):
    """A pattern of the setting `auto_create` cannot be used; the text says which and why."""


@final
class AutoCreation:
    """The names that the setting covers.

    Raises AutoCreateError.
    """

    def __init__(self, patterns: Sequence[str]) -> None:
        self._patterns: list[NamePattern] = []
        for text in patterns:
            pattern = NamePattern(text)
            if pattern.objection:
                raise AutoCreateError(f"auto_create: the pattern '{text}' {pattern.objection}")
            self._patterns.append(pattern)

    def allows(self, virtual_host: VirtualHost, name: str, always: bool) -> bool:
        """Whether a client may create a queue of this name by naming it.

        `always`: the client's kind of address creates queues unless a policy forbids it.
        """
        if not name or name.startswith(RESERVED_PREFIX):
            return False
        queue_type = virtual_host.default_queue_type or DEFAULT_QUEUE_TYPE
        allowed = virtual_host.policies.allow_creation(name, queue_type)
        if allowed is None:
            return always or any(pattern.matches(name) for pattern in self._patterns)
        return allowed
