"""The times of receipts, and their records in the log."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.message import TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.core.publishing.receipts import SLICE, receipt_marks
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.transactions.transaction import SETTLE, HeldPublish, Transaction
from tests.support.core.receipt_vhost import BOTH, ReceiptBench, receipt_body


class Job(Transaction):
    """A transaction without a waiting client."""

    def committed(self) -> None:
        """Do nothing: the message is on disk."""

    def failed(self, reason: str) -> None:
        """Do nothing: the message is not on disk."""


class Publish(HeldPublish):
    """A publish without a waiting client."""

    def taken(self, count: int) -> None:
        """Do nothing: the message has been enqueued."""


def job_of(office: ReceiptBench, held: int = 0, immediate: bool = False) -> Job:
    """Return an open transaction that acknowledges `held` messages of `q` and publishes a message there."""
    job = Job(office.vhost)
    if held:
        client = office.client(office.q, prefetch=held)
        office.run()
        for tag, entry in enumerate(client.held):
            job.hold(tag, entry, client.consumer, SETTLE)
    route = office.vhost.route("", "q")
    message = Message(route.address, b"1", 1, True, 0)
    message.marks = TELLS_ARRIVAL
    job.publishes.append(Publish(route, message, [], immediate))
    return job


def take(office: ReceiptBench, queue: Queue) -> None:
    client = office.client(queue)
    office.run()
    client.ack()
    client.cancel()


def test_each_waits_for_what_it_tells() -> None:
    office = ReceiptBench()
    message = office.send()
    assert message.date > 0, "or the log would not keep its marks"
    assert office.told() == []
    office.slow.sync()
    assert office.told() == ["arrival"]
    take(office, office.q)
    assert office.told() == ["arrival"]
    assert [names for _, names in office.slow.enqueued] == [["q"], ["back"], ["back"]]
    office.slow.sync()
    assert office.told() == ["arrival", "consumed"]
    assert receipt_body(next(iter(office.back.entries)).message)["message_id"] == "id-?"
    assert office.counters.receipts_sent == 2


def test_the_time_of_a_receipt_goes_on_after_a_restart() -> None:
    office = ReceiptBench(message_ttl=50)
    office.send(TELLS_ARRIVAL)
    receipt = office.slow.enqueued[-1][0]
    assert receipt.date == office.clock.schedule.date()


def test_without_the_log_there_is_nothing_to_wait_for() -> None:
    office = ReceiptBench()
    office.send(persistent=False)
    take(office, office.q)
    assert office.told() == ["arrival", "consumed"]
    assert [message.persistent for message, _ in office.slow.enqueued] == []


@pytest.mark.parametrize("marks", [TELLS_ARRIVAL, TELLS_CONSUMED])
def test_only_what_was_asked_for(marks: int) -> None:
    office = ReceiptBench()
    office.send(marks, persistent=False)
    take(office, office.q)
    assert office.told() == ["arrival" if marks == TELLS_ARRIVAL else "consumed"]


def test_rejected_and_dropped_messages_have_no_consumed_receipt() -> None:
    office = ReceiptBench()
    for _ in range(2):
        office.send(TELLS_CONSUMED, persistent=False)
    client = office.client(office.q, prefetch=1)
    office.run()
    client.reject()
    client.cancel()
    office.vhost.purge_queue("q")
    assert office.told() == []
    assert office.counters.receipts_dropped == 0


def test_a_queue_that_is_not_there_or_full_or_goes_meanwhile() -> None:
    office = ReceiptBench(max_length=2, overflow="reject-publish")
    for _ in range(3):
        office.send(TELLS_ARRIVAL)
    assert office.counters.receipts_dropped == 1, "room is kept for those that are to come"
    office.vhost.delete_queue("back", False, False)
    office.slow.sync()
    office.clock.advance(1)
    assert office.counters.receipts_dropped == 3
    office.send(TELLS_ARRIVAL)
    assert (office.counters.receipts_dropped, office.counters.receipts_sent) == (4, 0)


def test_after_a_full_disk_only_what_is_said_again_is_told() -> None:
    office = ReceiptBench()
    office.send(TELLS_CONSUMED)
    office.slow.sync()
    take(office, office.q)
    office.send(TELLS_ARRIVAL)
    office.slow.fail()
    assert office.told() == []
    office.slow.sync()
    assert office.told() == ["consumed"]
    assert office.counters.receipts_dropped == 1


def test_after_the_end_of_the_log_nothing_is_told() -> None:
    office = ReceiptBench()
    office.send(TELLS_CONSUMED)
    office.slow.sync()
    take(office, office.q)
    office.slow.fail()
    office.slow.fail()
    office.slow.sync()
    assert office.told() == []
    assert office.counters.receipts_dropped == 1


def test_many_are_put_in_slices() -> None:
    office = ReceiptBench()
    for _ in range(3 * SLICE):
        office.send(TELLS_ARRIVAL, persistent=False)
    turns: list[int] = []
    while not turns or office.back.ready > turns[-1]:
        turns.append(office.back.ready)
        office.clock.schedule.run()
    assert turns == [0, SLICE, 2 * SLICE, 3 * SLICE]


def test_receipts_of_a_transaction_are_in_its_batch() -> None:
    office = ReceiptBench()
    office.send(TELLS_CONSUMED)
    office.slow.sync()
    job_of(office, 1).commit()
    assert [names for _, names in office.slow.enqueued[1:]] == [["q"], ["back"], ["back"]]
    assert office.told() == []
    office.slow.sync()
    assert sorted(office.told()) == ["arrival", "consumed"]
    assert len(office.slow.enqueued) == 4, "nothing was appended again"
    assert office.counters.receipts_sent == 2


def test_undone_work_of_a_transaction_has_no_receipts() -> None:
    office = ReceiptBench(max_length=2, overflow="reject-publish")
    office.send(TELLS_CONSUMED)
    office.slow.sync()
    job = job_of(office, 1, immediate=True)
    job.commit()
    lost = job.settlements[0]
    release_entries(office.q, lost.entries, lost.consumer)
    office.slow.sync()
    assert office.told() == []
    assert [names for _, names in office.slow.settled] == ["q", "back", "back"]
    assert office.back.rules is not None
    assert office.back.rules.reserved == 0, "their room is given back"


def test_the_queue_of_receipts_may_go_before_the_transaction_is_over() -> None:
    office = ReceiptBench()
    job_of(office).commit()
    office.vhost.delete_queue("back", False, False)
    office.slow.sync()
    office.clock.advance(1)
    assert office.slow.forgotten == [office.slow.enqueued[1][0]]
    assert (office.counters.receipts_dropped, office.counters.receipts_sent) == (1, 0)


def test_a_transaction_that_fails_tells_nothing() -> None:
    office = ReceiptBench(max_length=2, overflow="reject-publish")
    office.send(TELLS_CONSUMED)
    office.slow.sync()
    job = job_of(office, 1)
    job.commit()
    office.slow.fail()
    assert office.told() == []
    assert office.q.ready == 1
    assert office.back.rules is not None
    assert office.back.rules.reserved == 0
    lost = job.settlements[0]
    office.slow.sync()
    office.run()
    office.q.settle(lost.entries[0])
    assert office.told() == ["consumed"]


@pytest.mark.parametrize("on", [None, "", "gone", "arrival,", 7])
def test_on_what(on: object) -> None:
    with pytest.raises(PreconditionFailed, match="invalid header 'x-receipt-on'"):
        receipt_marks({"x-receipt-to": "q", "x-receipt-on": on})


def test_marks() -> None:
    assert receipt_marks({}) == 0
    assert receipt_marks({"x-receipt-to": "q", "x-receipt-on": "consumed, arrival"}) == BOTH
    with pytest.raises(PreconditionFailed, match="invalid header 'x-receipt-to'"):
        receipt_marks({"x-receipt-on": "arrival"})
