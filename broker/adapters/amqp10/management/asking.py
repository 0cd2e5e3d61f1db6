"""One request on its way: who asks what, and how it is answered, at once or later."""

from __future__ import annotations

from collections.abc import Callable
from typing import Final, final

import structlog
from mypy_extensions import i64

from broker.adapters.amqp10.management.messages import Request, response
from broker.adapters.amqp10.management.refusal import (
    INTERNAL_ERROR,
    NO_CONTENT,
    UNAVAILABLE,
    Refused,
    status_of,
)
from broker.adapters.amqp10.management.targets import Target
from broker.adapters.served import ServedConnection
from broker.core.errors import BrokerError
from broker.core.ports import DurableWaiter
from broker.core.vhosts.vhost import VirtualHost
from protocol.amqp10.encoding import encode
from protocol.amqp10.writing import NULL_VALUE

SHOWN_MAX: Final = 255  # characters of a path in the log

_log = structlog.get_logger("amqpd.management")


@final
class Answer:
    """A status, and an encoded body in pieces, as it may be long.

    `durable`: it must not come before what was appended is on disk.
    """

    def __init__(self, status: int, body: list[bytes], durable: bool = False) -> None:
        self.status = status
        self.body = body
        self.durable = durable


def no_content(durable: bool) -> Answer:
    """It is done, and there is nothing to be said about it."""
    return Answer(NO_CONTENT, [NULL_VALUE], durable)


@final
class Asking:
    """A request of `client`, until `say` has been called with its response, once.

    `target` is its path, once that has been found to be one. `dropped`: nobody waits for it any more.
    """

    def __init__(
        self, client: ServedConnection, virtual_host: VirtualHost, say: Callable[[bytes], None]
    ) -> None:
        self.client = client
        self.virtual_host = virtual_host
        self.request = Request()
        self.target: Target = Target("/")
        self.dropped = False
        self._say = say

    def attempt(self, step: Callable[[], Answer | None]) -> None:
        """Take a step, which gives an answer, or None if that comes later. No error leaves here."""
        try:
            answer = step()
        except Refused as refused:
            answer = self._refusal(refused.status, refused.text)
        except BrokerError as error:
            answer = self._refusal(status_of(error), error.text)
        except Exception:
            _log.exception("internal error", peer=self.client.peer)
            answer = self._refusal(INTERNAL_ERROR, "internal error, see the broker's log")
        if answer is not None:
            self.give(answer)

    def give(self, answer: Answer) -> None:
        """Answer, when it can be relied on."""
        if answer.durable:
            self.client.server.store.wait(_OnDisk(self, answer))
        elif not self.dropped:
            self._say(response(answer.status, self.request.message_id, answer.body))

    def log_failed(self, reason: str) -> None:
        """What was asked for may not survive."""
        self.give(self._refusal(UNAVAILABLE, f"the log has failed: {reason}"))

    def _refusal(self, status: int, text: str) -> Answer:
        client, request = self.client, self.request
        _log.warning(
            "request refused",
            peer=client.peer,
            user=client.user,
            method=request.method,
            target=request.target[:SHOWN_MAX],
            status=status,
            reason=text,
        )
        return Answer(status, [encode(text)])


@final
class _OnDisk(DurableWaiter):
    """The answer to a durable change."""

    def __init__(self, asking: Asking, answer: Answer) -> None:
        self._asking = asking
        self._answer = answer

    def on_durable(self, batch: i64) -> None:
        """Give it (DurableWaiter)."""
        self._answer.durable = False
        self._asking.give(self._answer)

    def on_store_failed(self, reason: str) -> None:
        """Refuse instead (DurableWaiter)."""
        self._asking.log_failed(reason)
