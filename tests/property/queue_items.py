"""The messages of a queue in the model."""

from dataclasses import dataclass, field

from broker.core.queues.consumer import QueueConsumer

READY, OUT, KEPT, GONE = "ready", "out", "kept", "gone"  # kept: until it is to be tried again


@dataclass(order=True)
class Item:
    """The model's knowledge of a message in a queue; items are sorted as the queue must be."""

    rank: int
    number: int
    size: int = field(compare=False)
    state: str = field(compare=False, default=READY)
    owner: QueueConsumer | None = field(compare=False, default=None)
    sends: int = field(compare=False, default=0)
    was_out: bool = field(compare=False, default=False)  # a browser may have passed it meanwhile
    due: int | None = field(compare=False, default=None)  # when its time is over
    until: int = field(compare=False, default=0)  # when it is to be tried again
    key: int = field(compare=False, default=0)
    outdated: bool = field(compare=False, default=False)  # the message was replaced while a consumer had it
    promised: bool = field(compare=False, default=False)  # the message leaves with a transaction

    def is_late(self, now: int) -> bool:
        return self.due is not None and self.due <= now
