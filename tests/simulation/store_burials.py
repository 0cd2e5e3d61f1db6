"""Messages that leave a queue for streams, in the life of a log."""

from broker.core.ports import DurableWaiter
from tests.simulation.store_deaths import Death, Origin
from tests.simulation.store_model import Event
from tests.simulation.store_work import Work


def bury(work: Work) -> None:
    """A message leaves a queue, and is a row of a stream or of two."""
    rng, log = work.rng, work.log
    free = [
        (key, number)
        for key, (message, queues) in work.held.items()
        for number in queues
        if (key, number) not in work.reserved and message.sequence != 0
    ]
    if log.failure or not work.streams or not free:
        return
    # often the newest: it may be a letter that is not on disk yet
    key, number = rng.choice(free) if rng.random() < 0.5 else free[-1]
    message = work.held[key][0]
    sequence, batch = message.sequence, log.batch
    for stream in rng.sample(sorted(work.streams), min(len(work.streams), rng.choice([1, 1, 2]))):
        work.append_row(stream, rng.choice([20, 300]))
    log.append_burial(message, work.queues[number])
    origin = work.deaths.origins.get(key)
    if origin is None:
        work.model.add(batch, Event("transacted", sequence, (number,)))
        work.deaths.note(Death(batch, -1, key, sequence, number))
    else:
        origin.buried += 1
        log.wait(Burial(work, origin))
    work.let_go(key, number)


class Burial(DurableWaiter):
    """A waiter for stream rows that replace a message: the log removes the message when they are durable."""

    def __init__(self, work: Work, origin: Origin) -> None:
        self.work = work
        self.origin = origin

    def on_durable(self, batch: int) -> None:
        """Settle the message: the rows are durable."""
        self.origin.buried -= 1
        self.work.deaths.settle(self.origin)

    def on_store_failed(self, reason: str) -> None:
        """Keep the message until the next start: the rows are lost."""
        self.origin.buried -= 1
        self.origin.stays = True
        self.origin.leaving = False
