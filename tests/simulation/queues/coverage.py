"""How often each feature, transition and check was exercised, and which of them must be."""

from tests.simulation.queues.checks import NAMES
from tests.simulation.queues.model import Seen

STEPS = (
    "publish",
    "publish immediate",
    "transaction",
    "purge",
    "delete queue",
    "stop",
    "attach",
    "cancel",
    "close channel",
    "lose connection",
    "block",
    "flow",
    "qos",
    "get",
    "settle",
    "discard",
    "release",
    "send again",
    "pass time",
    "turn",
    "rest",
    "commit",
    "disk",
    "restart",
    "kill",
)
TRANSITIONS = (
    "entry: ready to out",
    "entry: out to ready",
    "entry: out to settled",
    "entry: out to rejected",
    "entry: out to delivery_limit",
    "entry: ready to expired",
    "entry: ready to maxlen",
    "entry: ready to purged",
    "entry: ready to delivery_limit",
    "delivery: acquired",
    "delivery: browsed",
    "delivery: no-ack",
    "delivery: got",
    "delivery: sent again",
    "attach: plain",
    "attach: filtered",
    "attach: turned away",
    "connection: full",
    "connection: takes data",
    "flow: on",
    "flow: off",
    "get: locked",
    "get: stopped",
    "entry: out to held",
    "entry: ready to replaced",
    "entry: out to replaced",
    "entry: held to ready",
    "entry: held to expired",
    "publish: the queue is stopped",
    "stop: enqueue off",
    "stop: enqueue on",
    "stop: dequeue off",
    "stop: dequeue on",
    "get: empty",
    "group: assigned",
    "group: parked",
    "group: closed",
    "group: shut while in flight",
    "group: freed",
    "group: woken",
    "group: rebalanced",
    "group: forgotten",
    "duplicate: of all",
    "duplicate: of some",
    "restart: id known",
    "restart: number known",
    "restart: known in doubt",
    "lease: ended",
    "immediate: taken",
    "immediate: not taken",
    "publish: refused",
    "publish: handed over",
    "refused: reject-publish",
    "refused: reject-publish-dlx",
    "letter: rejected",
    "letter: expired",
    "letter: maxlen",
    "letter: delivery_limit",
    "letter: ends a cycle",
    "letter: passed on",
    "transaction: committed",
    "transaction: refused",
    "restart: clean",
    "restart: killed",
    "restart: power lost",
    "restart: killed while starting",
    "restart: in doubt, there",
    "restart: in doubt, gone",
)


def missing(seen: Seen) -> list[str]:
    """What was never exercised."""
    names = [f"step: {name}" for name in STEPS] + list(TRANSITIONS) + [f"check: {name}" for name in NAMES]
    return [name for name in names if not seen[name]]


def table(seen: Seen) -> str:
    """A line for each."""
    lines = []
    for name in sorted(seen):
        meaning = NAMES.get(name.removeprefix("check: "), "") if name.startswith("check: ") else ""
        lines.append(f"{seen[name]:>12,}  {name}{': ' + meaning if meaning else ''}")
    return "\n".join(lines)
