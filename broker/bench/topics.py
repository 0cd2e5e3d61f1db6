"""Publishing through a topic exchange with many bindings: what a routing key costs a broker.

Each queue is bound with one pattern that matches the keys published for it. All other bindings are of the
first queue and match nothing that is published; their patterns have words, `*` and `#` in many places.
"""

from collections.abc import Iterator
from typing import Final

from pamqp import commands

from broker.bench.client091 import Client091
from broker.bench.plan import Plan

KEY_DIGITS: Final = 9
KEYS_MAX: Final = 10**KEY_DIGITS
_OTHERS: Final = (
    "%s.*.news",
    "%s.#",
    "*.%s.eu",
    "#.%s",
    "%s.eu.*.#",
    "%s",
)  # filled with a word of its own each


def routing_key(queue: str, number: int) -> str:
    """The key of a message for `queue`; keys differ in their last KEY_DIGITS characters."""
    return f"{queue}.eu.{number % KEYS_MAX:0{KEY_DIGITS}d}"


def patterns(queues: list[str], count: int) -> Iterator[tuple[str, str]]:
    """`count` bindings, as queue and pattern; the first ones are those that match."""
    for queue in queues:
        yield queue, f"{queue}.*.#"
    for number in range(count - len(queues)):
        yield queues[0], _OTHERS[number % len(_OTHERS)] % f"other-{number}"


async def declare(control: Client091, exchange: str, queues: list[str], plan: Plan) -> None:
    """Declare the exchange and its bindings. Raises BenchError."""
    await control.call(commands.Exchange.Declare(0, exchange, "topic", False, False, False, False, False, {}))
    for queue, pattern in patterns(queues, plan.bindings):
        await control.call(commands.Queue.Bind(0, queue, exchange, pattern, False, {}))
