"""The times of receipts, and their records in the log."""

import pytest

from broker.core.errors import PreconditionFailed
from broker.core.message import TELLS_ARRIVAL, TELLS_CONSUMED, Message
from broker.core.publishing.publisher import Outcome
from broker.core.publishing.receipts import SLICE, receipt_marks
from broker.core.queues.queue import Queue
from broker.core.queues.returns import release_entries
from broker.core.transactions.transaction import SETTLE, HeldPublish, Transaction
from tests.support.core.receipt_vhost import BOTH, ReceiptBench, receipt_body


class Job(Transaction):
    """A transaction without a waiting client."""

    def on_committed(self) -> None:
        """Do nothing: the message is on disk."""

    def on_commit_failed(self, reason: str) -> None:
        """Do nothing: the message is not on disk."""


class Publish(HeldPublish):
    """A publish without a waiting client."""

    def report_outcome(self, outcome: Outcome) -> None:
        """Do nothing: the message has been enqueued."""


def job_of(bench: ReceiptBench, held: int = 0, immediate: bool = False) -> Job:
    """Return an open transaction that acknowledges `held` messages of `q` and publishes a message there."""
    job = Job(bench.vhost.publisher)
    if held:
        client = bench.client(bench.q, prefetch=held)
        bench.run()
        for tag, entry in enumerate(client.held):
            job.hold_settlement(tag, entry, client.consumer, SETTLE)
    route = bench.vhost.publisher.route("", "q")
    message = Message(route.address, b"1", 1, True, 0)
    message.marks = TELLS_ARRIVAL
    job.publishes.append(Publish(route, message, [], immediate))
    return job


def take(bench: ReceiptBench, queue: Queue) -> None:
    client = bench.client(queue)
    bench.run()
    client.ack()
    client.cancel()


def test_receipts_are_sent_after_the_sync_of_their_event() -> None:
    bench = ReceiptBench()
    message = bench.send()
    assert message.date > 0, "or the log would not keep its marks"
    assert bench.receipts() == []
    bench.slow.sync()
    assert bench.receipts() == ["arrival"]
    take(bench, bench.q)
    assert bench.receipts() == ["arrival"]
    assert [names for _, names in bench.slow.enqueued] == [["q"], ["back"], ["back"]]
    bench.slow.sync()
    assert bench.receipts() == ["arrival", "consumed"]
    assert receipt_body(next(iter(bench.back.entries)).message)["message_id"] == "id-?"
    assert bench.counters.receipts_sent == 2


def test_the_time_of_a_receipt_goes_on_after_a_restart() -> None:
    bench = ReceiptBench(message_ttl=50)
    bench.send(TELLS_ARRIVAL)
    receipt = bench.slow.enqueued[-1][0]
    assert receipt.date == bench.clock.schedule.date()


def test_receipts_of_transient_messages_are_sent_at_once() -> None:
    bench = ReceiptBench()
    bench.send(persistent=False)
    take(bench, bench.q)
    assert bench.receipts() == ["arrival", "consumed"]
    assert [message.persistent for message, _ in bench.slow.enqueued] == []


@pytest.mark.parametrize("marks", [TELLS_ARRIVAL, TELLS_CONSUMED])
def test_only_requested_receipts_are_sent(marks: int) -> None:
    bench = ReceiptBench()
    bench.send(marks, persistent=False)
    take(bench, bench.q)
    assert bench.receipts() == ["arrival" if marks == TELLS_ARRIVAL else "consumed"]


def test_rejected_and_dropped_messages_have_no_consumed_receipt() -> None:
    bench = ReceiptBench()
    for _ in range(2):
        bench.send(TELLS_CONSUMED, persistent=False)
    client = bench.client(bench.q, prefetch=1)
    bench.run()
    client.reject()
    client.cancel()
    bench.vhost.declarations.purge_queue("q")
    assert bench.receipts() == []
    assert bench.counters.receipts_dropped == 0


def test_receipts_for_missing_full_or_deleted_queues_are_dropped() -> None:
    bench = ReceiptBench(max_length=2, overflow="reject-publish")
    for _ in range(3):
        bench.send(TELLS_ARRIVAL)
    assert bench.counters.receipts_dropped == 1, "room is kept for those that are to come"
    bench.vhost.declarations.delete_queue("back", False, False)
    bench.slow.sync()
    bench.clock.advance(1)
    assert bench.counters.receipts_dropped == 3
    bench.send(TELLS_ARRIVAL)
    assert (bench.counters.receipts_dropped, bench.counters.receipts_sent) == (4, 0)


def test_only_repeated_events_send_receipts_after_a_full_disk() -> None:
    bench = ReceiptBench()
    bench.send(TELLS_CONSUMED)
    bench.slow.sync()
    take(bench, bench.q)
    bench.send(TELLS_ARRIVAL)
    bench.slow.fail()
    assert bench.receipts() == []
    bench.slow.sync()
    assert bench.receipts() == ["consumed"]
    assert bench.counters.receipts_dropped == 1


def test_no_receipts_are_sent_after_the_log_has_stopped() -> None:
    bench = ReceiptBench()
    bench.send(TELLS_CONSUMED)
    bench.slow.sync()
    take(bench, bench.q)
    bench.slow.fail()
    bench.slow.fail()
    bench.slow.sync()
    assert bench.receipts() == []
    assert bench.counters.receipts_dropped == 1


def test_many_are_put_in_slices() -> None:
    bench = ReceiptBench()
    for _ in range(3 * SLICE):
        bench.send(TELLS_ARRIVAL, persistent=False)
    turns: list[int] = []
    while not turns or bench.back.ready > turns[-1]:
        turns.append(bench.back.ready)
        bench.clock.schedule.run()
    assert turns == [0, SLICE, 2 * SLICE, 3 * SLICE]


def test_receipts_of_a_transaction_are_in_its_batch() -> None:
    bench = ReceiptBench()
    bench.send(TELLS_CONSUMED)
    bench.slow.sync()
    job_of(bench, 1).commit()
    assert [names for _, names in bench.slow.enqueued[1:]] == [["q"], ["back"], ["back"]]
    assert bench.receipts() == []
    bench.slow.sync()
    assert sorted(bench.receipts()) == ["arrival", "consumed"]
    assert len(bench.slow.enqueued) == 4, "nothing was appended again"
    assert bench.counters.receipts_sent == 2


def test_undone_work_of_a_transaction_has_no_receipts() -> None:
    bench = ReceiptBench(max_length=2, overflow="reject-publish")
    bench.send(TELLS_CONSUMED)
    bench.slow.sync()
    job = job_of(bench, 1, immediate=True)
    job.commit()
    lost = job.settlements[0]
    release_entries(bench.q, lost.entries, lost.consumer)
    bench.slow.sync()
    assert bench.receipts() == []
    assert [names for _, names in bench.slow.settled] == ["q", "back", "back"]
    assert bench.back.limits is not None
    assert bench.back.limits.reserved == 0, "their room is given back"


def test_the_queue_of_receipts_may_go_before_the_transaction_is_over() -> None:
    bench = ReceiptBench()
    job_of(bench).commit()
    bench.vhost.declarations.delete_queue("back", False, False)
    bench.slow.sync()
    bench.clock.advance(1)
    assert bench.slow.forgotten == [bench.slow.enqueued[1][0]]
    assert (bench.counters.receipts_dropped, bench.counters.receipts_sent) == (1, 0)


def test_a_failed_transaction_sends_no_receipts() -> None:
    bench = ReceiptBench(max_length=2, overflow="reject-publish")
    bench.send(TELLS_CONSUMED)
    bench.slow.sync()
    job = job_of(bench, 1)
    job.commit()
    bench.slow.fail()
    assert bench.receipts() == []
    assert bench.q.ready == 1
    assert bench.back.limits is not None
    assert bench.back.limits.reserved == 0
    lost = job.settlements[0]
    bench.slow.sync()
    bench.run()
    bench.q.settle(lost.entries[0])
    assert bench.receipts() == ["consumed"]


@pytest.mark.parametrize("on", [None, "", "gone", "arrival,", 7])
def test_an_invalid_receipt_on_header_is_refused(on: object) -> None:
    with pytest.raises(PreconditionFailed, match="invalid header 'x-receipt-on'"):
        receipt_marks({"x-receipt-to": "q", "x-receipt-on": on})


def test_marks() -> None:
    assert receipt_marks({}) == 0
    assert receipt_marks({"x-receipt-to": "q", "x-receipt-on": "consumed, arrival"}) == BOTH
    with pytest.raises(PreconditionFailed, match="invalid header 'x-receipt-to'"):
        receipt_marks({"x-receipt-on": "arrival"})
