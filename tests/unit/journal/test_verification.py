"""A journal adds up, or it is said where it does not."""

from collections.abc import Callable

import pytest

from broker.journal.verification import FINDINGS_MAX, Verification
from protocol.journal import records as r
from tests.support.journal.handmade_journal import EventWriter, rows_of

Tell = Callable[[EventWriter], None]


def verified(tell: Tell) -> Verification:
    scribe = EventWriter()
    tell(scribe)
    found = Verification()
    found.take(rows_of(scribe.file()))
    return found


def a_whole_day(scribe: EventWriter) -> None:
    scribe.tell(r.DECLARE)
    for uid in range(1, 10):
        scribe.tell(r.ENQUEUE, uid, uid)
    scribe.tell(r.DELIVER, 1, 1)
    scribe.tell(r.REQUEUE, 1, 1, reason="nack")
    for uid, op in enumerate(
        (r.ACK, r.REJECT, r.EXPIRE, r.DEAD_LETTER, r.DROP_OVERFLOW, r.REPLACE, r.REMOVE), 1
    ):
        scribe.tell(op, uid, uid)
    scribe.tell(r.CHECKPOINT, size=2, reason="time")
    scribe.tell(r.PURGE, place=8, other=8, size=1)
    scribe.tell(r.ENQUEUE, 10, 10)
    scribe.tell(r.LOST, size=1, reason="shutdown")
    scribe.tell(r.CHECKPOINT, size=1, reason="shutdown")
    scribe.tell(r.END)
    scribe.tell(r.RECOVER, 9, 1)
    scribe.tell(r.RECOVER, size=1)
    scribe.tell(r.QUEUE_DELETE, size=1)


def test_a_whole_day_adds_up() -> None:
    verification = verified(a_whole_day)
    assert verification.findings == []
    assert (verification.events, verification.queues, verification.checked, verification.gaps) == (
        28,
        1,
        4,
        0,
    )


@pytest.mark.parametrize("missing", [1, 5, 13, 19, 21, 25], ids=str)
def test_an_event_that_is_missing_is_found(missing: int) -> None:
    scribe = EventWriter()
    a_whole_day(scribe)
    rows = rows_of(scribe.file())
    del rows[missing]
    verification = Verification()
    verification.take(rows)
    assert verification.findings == [f"events {missing + 1} to {missing + 1} of node 'n-1' are missing"]


def test_an_event_that_comes_twice_is_found() -> None:
    scribe = EventWriter()
    a_whole_day(scribe)
    rows = rows_of(scribe.file())
    verification = Verification()
    verification.take([*rows[:4], rows[3], *rows[4:]])
    assert verification.findings == ["event 4 of node 'n-1' comes again"]


def checkpoint(scribe: EventWriter) -> None:
    scribe.tell(r.DECLARE)
    scribe.tell(r.ENQUEUE, 1, 1)
    scribe.tell(r.CHECKPOINT, size=2, reason="time")


def deletion(scribe: EventWriter) -> None:
    scribe.tell(r.DECLARE)
    scribe.tell(r.QUEUE_DELETE, size=1)


def recovery(scribe: EventWriter) -> None:
    scribe.tell(r.RECOVER, 1, 1)
    scribe.tell(r.RECOVER, size=2)


@pytest.mark.parametrize(
    ("tell", "text"),
    [
        (checkpoint, "checkpoint 3 says 2 messages, what came and left makes it 1"),
        (deletion, "queue_delete 2 says 1 messages, what came and left makes it 0"),
        (recovery, "recover 2 says 2 messages, what came and left makes it 1"),
    ],
    ids=["checkpoint", "deletion", "recovery"],
)
def test_contradictions_are_found(tell: Tell, text: str) -> None:
    assert verified(tell).findings == [f"queue 'q' in vhost '/' (7): {text}"]


def test_counts_are_unknown_between_a_gap_and_the_next_checkpoint() -> None:
    def tell(scribe: EventWriter) -> None:
        checkpoint(scribe)
        scribe.encoder.seq += 3  # lost
        scribe.tell(r.GAP, size=3, text=b"crash")
        scribe.tell(r.ACK, 7, 7)
        scribe.tell(r.CHECKPOINT, size=9, reason="time")
        scribe.tell(r.ACK, 8, 8)
        scribe.tell(r.CHECKPOINT, size=9, reason="time")

    verification = verified(tell)
    assert verification.gaps == 1
    assert [finding.partition(": ")[2] for finding in verification.findings] == [
        "checkpoint 3 says 2 messages, what came and left makes it 1",
        "checkpoint 11 says 9 messages, what came and left makes it 8",
    ]


def test_counts_are_unknown_while_a_queue_is_not_journaled() -> None:
    def tell(scribe: EventWriter) -> None:
        scribe.tell(r.DECLARE)
        scribe.tell(r.LEVEL, reason="off")
        scribe.tell(r.CHECKPOINT, size=5, reason="level")
        scribe.tell(r.ACK, 1, 1)
        scribe.tell(r.CHECKPOINT, size=4, reason="time")

    assert verified(tell).findings == []


def test_recovered_and_lost_messages_of_a_restart() -> None:
    def tell(scribe: EventWriter) -> None:
        for stopped, there in ((3, 2), (1, 2)):
            scribe.tell(r.CHECKPOINT, size=stopped, reason="level")
            scribe.tell(r.CHECKPOINT, size=stopped, reason="shutdown")
            scribe.tell(r.END)
            for uid in range(there):
                scribe.tell(r.RECOVER, uid + 1, uid)
            scribe.tell(r.RECOVER, size=there)
            scribe.tell(r.LEVEL, reason="off")

    assert [finding.partition(": ")[2] for finding in verified(tell).findings] == [
        "recover 6 says 2 messages, what came and left makes it 3",
        "recover 13 says 2 messages, what came and left makes it 1",
    ]


def test_while_the_broker_runs_without_a_queue_in_the_journal_nothing_is_known_of_it() -> None:
    def tell(scribe: EventWriter) -> None:
        scribe.tell(r.CHECKPOINT, size=3, reason="shutdown")
        scribe.tell(r.END)
        scribe.queue, own = scribe.other, scribe.queue
        scribe.tell(r.CHECKPOINT, size=0, reason="shutdown")
        scribe.tell(r.END)
        scribe.queue = own
        scribe.tell(r.RECOVER, size=0)

    assert verified(tell).findings == []


def listed(scribe: EventWriter, *uids: int) -> None:
    for uid in uids:
        scribe.tell(r.RECOVER, uid, uid)


def killed(scribe: EventWriter) -> None:
    listed(scribe, 1, 2)
    scribe.tell(r.GAP, text=b"crash")
    listed(scribe, 1, 2, 3)
    scribe.tell(r.RECOVER, size=3)


def not_written(scribe: EventWriter) -> None:
    listed(scribe, 1)
    scribe.encoder.seq += 1
    scribe.tell(r.GAP, size=1, text=b"disk full")
    listed(scribe, 3)
    scribe.tell(r.RECOVER, size=3)


@pytest.mark.parametrize("tell", [killed, not_written], ids=["killed", "not written"])
def test_a_list_with_a_gap_in_it_is_not_compared_and_the_next_one_is(tell: Tell) -> None:
    assert verified(tell).findings == []

    def go_on(scribe: EventWriter) -> None:
        tell(scribe)
        scribe.queue = scribe.other
        recovery(scribe)

    assert len(verified(go_on).findings) == 1


def test_recovery_lists_are_compared_per_node() -> None:
    scribe = EventWriter()
    killed(scribe)
    rows = rows_of(scribe.file())
    verification = Verification()
    verification.take(rows[:2])
    verification.take([row._replace(node="n-2", seq=row.seq - 3) for row in rows[3:]])
    assert (verification.findings, verification.checked) == ([], 1)


def test_a_list_without_its_beginning_is_not_compared() -> None:
    scribe = EventWriter()
    listed(scribe, 1, 2, 3)
    scribe.tell(r.RECOVER, size=3)
    verification = Verification()
    verification.take(rows_of(scribe.file())[1:])
    assert (verification.findings, verification.checked) == ([], 0)


def test_very_many_findings_are_counted() -> None:
    def tell(scribe: EventWriter) -> None:
        scribe.tell(r.DECLARE)
        for number in range(FINDINGS_MAX + 5):
            scribe.tell(r.CHECKPOINT, size=number + 1, reason="time")

    verification = verified(tell)
    assert (len(verification.findings), verification.unmentioned) == (FINDINGS_MAX, 5)


@pytest.mark.parametrize(("lost", "count"), [(3, 0), (3, 2), (1, 0)], ids=["none", "fewer", "one"])
def test_a_gap_excuses_no_more_events_than_it_says(lost: int, count: int) -> None:
    def tell(scribe: EventWriter) -> None:
        scribe.tell(r.DECLARE)
        scribe.encoder.seq += lost
        scribe.tell(r.GAP, size=count, text=b"crash")

    verification = verified(tell)
    assert verification.findings == [f"events 2 to {1 + lost - count} of node 'n-1' are missing"]
    assert verification.gaps == 1


def test_a_gap_of_version_1_excuses_all_events_directly_before_it() -> None:
    scribe = EventWriter()
    scribe.tell(r.DECLARE)
    scribe.encoder.seq += 3
    scribe.tell(r.GAP, text=b"crash")
    verification = Verification()
    verification.take(
        [row._replace(quantity=None) if row.op == "gap" else row for row in rows_of(scribe.file())]
    )
    assert verification.findings == []


def test_rows_of_a_stream_add_up() -> None:
    def tell(scribe: EventWriter, trimmed: int) -> None:
        scribe.tell(r.DECLARE)
        for uid in range(5):
            scribe.tell(r.APPEND, uid + 1, uid)
            scribe.tell(r.READ, 0, uid)
        scribe.tell(r.TRIM, place=1, other=0, size=trimmed)
        scribe.tell(r.CHECKPOINT, size=3, reason="time")

    assert verified(lambda scribe: tell(scribe, 2)).findings == []
    assert len(verified(lambda scribe: tell(scribe, 1)).findings) == 1
