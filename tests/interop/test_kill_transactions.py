"""kill -9 among transactions over several queues: each is there as a whole or not at all."""

from pathlib import Path

import pytest
from pamqp.commands import Tx

from tests.interop.kill_work import PERSISTENT, RESULTS, SMALL, Outcome, Worker, body_of, number_of, rounds
from tests.support.amqp091.frames import Message
from tests.support.amqp091.peer import Peer
from tests.support.daemon.daemon import Address


class Worker091(Worker):
    """A worker that uses AMQP 0-9-1."""

    def __init__(self, address: Address, seed: int) -> None:
        super().__init__(seed)
        self.channel = Peer(address).open().channel()
        self.channel.call(Tx.Select(), Tx.SelectOk)
        self.channel.qos(10)
        self.channel.consume("work", "w")

    def drop(self) -> None:
        """Close the connection."""
        self.channel.peer.drop()

    def transaction(self) -> None:
        """Run a transaction, sometimes after a rollback."""
        channel = self.channel
        messages = channel.deliveries(self.random.randrange(1, 6))
        if self.random.random() < 0.2:
            self.fill(messages[:1])
            channel.call(Tx.Rollback(), Tx.RollbackOk)
        outcome = self.fill(messages)
        self.asked = outcome.done | outcome.rejected
        channel.call(Tx.Commit(), Tx.CommitOk)
        self.asked = set()
        self.committed.add(outcome)

    def fill(self, messages: list[Message]) -> Outcome:
        """Do them, or reject them."""
        outcome = Outcome()
        for message in messages:
            number = number_of(message.body)
            if self.random.random() < 0.3:
                self.channel.reject(message.tag, requeue=False)
                outcome.rejected.add(number)
                continue
            self.channel.ack(message.tag)
            outcome.done.add(number)
            for queue in RESULTS:
                self.channel.publish(body_of(number), queue, properties=PERSISTENT)
        return outcome


@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_kill_among_transactions(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 2, settings, Worker091)


@pytest.mark.nightly
@pytest.mark.parametrize("settings", [{}, SMALL], ids=["defaults", "small"])
def test_fifty_kills_among_transactions(tmp_path: Path, settings: dict[str, str]) -> None:
    rounds(tmp_path, 50, settings, Worker091)
