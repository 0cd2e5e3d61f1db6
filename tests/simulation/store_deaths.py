"""Dead letters in the life of a log, and substitutes after a full disk."""

from dataclasses import dataclass, field

from tests.simulation.store_model import Event, published
from tests.simulation.store_state import WorkState


@dataclass
class Death:
    """A message that was in a queue, and the letter that was appended in its place, by their own numbers.

    The letter is -1 if rows of streams were.
    """

    batch: int
    letter: int
    key: int
    sequence: int
    queue: int


@dataclass(eq=False)
class Origin:
    """A message that the log keeps, and the dead letters that replace it.

    `buried`: the number of its letters that are rows of streams and not durable yet. `stays`: some rows never
    became durable, so that the message is recovered at the next start.
    """

    sequence: int
    queue: int
    letters: set[int] = field(default_factory=set)
    leaving: bool = False  # transactions settle all of them
    buried: int = 0
    stays: bool = False


class Deaths:
    """Random deaths of messages, and the model of the messages that the log must keep."""

    def __init__(self, work: WorkState) -> None:
        self.work = work
        self.appended: list[Death] = []
        self.origins: dict[int, Origin] = {}  # by letter

    def die(self) -> None:
        """A message leaves a queue, and others get its letter."""
        work = self.work
        rng, log = work.rng, work.log
        free = [
            (key, number)
            for key, (_, queues) in work.held.items()
            for number in queues
            if (key, number) not in work.reserved
        ]
        if not free:
            return
        # often the newest: it may be a letter that is not on disk yet
        key, number = rng.choice(free) if rng.random() < 0.5 else free[-1]
        message = work.held[key][0]
        if message.sequence == 0:
            return  # the core does not ask the log to keep what it does not hold
        chosen = rng.sample(sorted(work.queues), min(len(work.queues), rng.choice([1, 1, 2])))
        letter = work.new_message()
        if message.body is not None and rng.random() < 0.7:
            letter.body = message.body
        letter.date, letter.died = 1_700_000_000_000, True
        own = work.next_message - 1
        sequence, batch, refused = message.sequence, log.batch, bool(log.failure)
        log.append_death(letter, [work.queues[n] for n in chosen], message, work.queues[number])
        work.held[own] = (letter, set(chosen))
        known = self.origins.get(key)
        if known is not None:
            self._substitute(own, known)
        elif refused:
            self._substitute(own, Origin(sequence, number))
        else:
            work.model.add(batch, published(letter, chosen, work.load(letter)))
            work.model.add(batch, Event("transacted", sequence, (number,)))
            self.note(Death(batch, own, key, sequence, number))
        work.let_go(key, number)

    def note(self, death: Death) -> None:
        """Keep a death until it is durable."""
        self.appended = [other for other in self.appended if other.batch > self.work.log.durable]
        self.appended.append(death)

    def _substitute(self, letter: int, origin: Origin) -> None:
        self.origins[letter] = origin
        origin.letters.add(letter)

    def let_go(self, letter: int) -> None:
        """Record that a queue no longer has a letter, so that perhaps only transactions settle the rest."""
        origin = self.origins.get(letter)
        if letter not in self.work.held:
            self.gone(letter)
        if origin is not None:
            self.look(origin)

    def look(self, origin: Origin) -> None:
        """Settle a message with the last transaction that settles its substitutes."""
        work = self.work
        held = [(letter, number) for letter in origin.letters for number in work.held[letter][1]]
        if not (held or origin.buried) or origin.stays or origin.leaving or work.log.stopped:
            return
        if work.reserved.issuperset(held):
            origin.leaving = True
            work.model.add(work.log.batch, Event("transacted", origin.sequence, (origin.queue,)))

    def gone(self, letter: int) -> None:
        """Record that no queue has the letter any more."""
        origin = self.origins.pop(letter, None)
        if origin is not None:
            origin.letters.discard(letter)
            self.settle(origin)

    def settle(self, origin: Origin, batch: int = 0) -> None:
        """Settle a message without substitutes in the batch being filled, or in `batch`."""
        work = self.work
        if not origin.letters and not origin.buried and not origin.stays and not work.log.stopped:
            work.model.add(batch or work.log.batch, Event("settle", origin.sequence, (origin.queue,)))

    def refuse(self, durable: int, moved: int, lost: set[int]) -> None:
        """The batches after `durable` did not reach the disk; `lost` are the messages that they published."""
        origins: dict[int, Origin] = {}  # by letter, also those that died themselves
        for death in self.appended:
            if death.batch > durable:
                if death.key in origins:
                    origins[death.letter] = origins[death.key]
                elif death.sequence not in lost:
                    origins[death.letter] = Origin(death.sequence, death.queue)
                if death.letter == -1 and -1 in origins:
                    origins.pop(-1).stays = True
        self.appended = []
        for letter, origin in origins.items():
            if letter in self.work.held:
                self._substitute(letter, origin)
        for origin in dict.fromkeys(origins.values()):
            self.settle(origin, moved)

    def forget(self) -> None:
        """Forget everything at a restart, after which the log is all there is."""
        self.appended = []
        self.origins = {}
