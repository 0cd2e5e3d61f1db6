"""Kept and omitted events of a digest, and deliveries out of order."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession

from pipeline.digest.digest import digest
from pipeline.digest.schema import select_kept, select_lived, select_placed
from pipeline.digest.sources import read, sealed_journal_digest
from pipeline.errors import PipelineError
from pipeline.jobs.audit import audit
from pipeline.jobs.order import find_reordered, order
from tests.pipeline.frames import SLOW, digested, table
from tests.pipeline.test_order import QUEUE, deliver, enqueue, listed

pytestmark = pytest.mark.spark

POISON = 5
Event = dict[str, Any]


def made(events: list[Event] | pa.Table, kind: str) -> list[Event]:
    """The rows of a kind in the digest of some events, which are numbered by their order."""
    if not isinstance(events, pa.Table):
        events = numbered(events)
    return [
        row[kind] for batch in digest(events, POISON) for row in batch.to_pylist() if row[kind] is not None
    ]


def numbered(events: list[Event]) -> pa.Table:
    return table([event | {"seq": seq} for seq, event in enumerate(events, 1)])


def left(uid: int, op: str = "ack", **fields: object) -> Event:
    return QUEUE | {"op": op, "msg_uid": uid} | fields


def ops(events: list[Event], kind: str = "lived") -> list[tuple[int | None, str]]:
    return [(row["msg_uid"], row["op"]) for row in made(events, kind)]


def test_a_life_that_is_over_is_counted_and_left_out() -> None:
    events = [enqueue(7), enqueue(8), deliver(7), left(7), deliver(8)]

    assert ops(events) == [(8, "enqueue"), (8, "deliver")]
    (sums,) = made(events, "moved")
    assert (sums["settled"], sums["lowest"], sums["change"], sums["events"]) == (1, 7, 1, 5)


@pytest.mark.parametrize(
    "life",
    [
        [enqueue(1), left(1), left(1)],
        [enqueue(1), left(1), deliver(1)],
        [enqueue(1), deliver(1, delivery_count=POISON), left(1)],
        [left(1, "recover"), left(1)],
        [enqueue(1), left(1, "recover"), left(1)],
        [deliver(1), left(1)],
        [enqueue(1)],
    ],
    ids=["twice", "delivered after", "poison", "listed", "listed again", "came before", "open"],
)
def test_any_other_life_is_left_in_whole(life: list[Event]) -> None:
    assert len(ops([enqueue(2), *life, left(2)])) == len(life)


def test_the_same_message_in_another_queue_is_another_life() -> None:
    other = {"queue_id": 2, "queue": "other"}
    events = [enqueue(1), enqueue(1) | other, left(1), deliver(1) | other]

    assert [row["queue_id"] for row in made(events, "lived")] == [2, 2]
    assert sum(row["settled"] for row in made(events, "moved")) == 1


def test_declarations_and_both_ends_of_a_forwarding_are_kept() -> None:
    dead = {"queue_id": 2, "queue": "dead"}
    events = [
        QUEUE | {"op": "declare", "quantity": 0},
        enqueue(1),
        left(1, "dead_letter", peer_queue="dead"),
        enqueue(2) | dead | {"origin_uid": 1},
        left(2) | dead,
        enqueue(3),
        left(3, "dead_letter", peer_queue=""),
    ]

    assert ops(events, "kept") == [(None, "declare"), (1, "dead_letter"), (2, "enqueue")]
    assert ops(events) == []


def test_each_anchor_and_each_block_begins_new_sums() -> None:
    look = {"node": "a", "queue_id": 2, "queue": "other", "op": "checkpoint", "quantity": 0}
    seqs = [65_530, 65_531, 65_532, 65_535, 65_536]
    events = [enqueue(1), look, enqueue(2), enqueue(3), enqueue(4)]

    rows = made(table([event | {"seq": seq} for event, seq in zip(events, seqs, strict=True)]), "moved")

    own = [(row["first"], row["last"], row["change"]) for row in rows if row["queue_id"] == 1]
    assert sorted(own) == [(65_530, 65_530, 1), (65_532, 65_535, 2), (65_536, 65_536, 1)]


def test_purges_and_losses_change_a_queue_by_the_same_number() -> None:
    events = [
        enqueue(1),
        enqueue(2),
        enqueue(3),
        QUEUE | {"op": "purge", "quantity": 2},
        QUEUE | {"op": "lost"},
    ]
    assert sum(row["change"] for row in made(events, "moved")) == 1


def test_events_may_be_in_any_order_and_of_several_nodes() -> None:
    events = numbered([enqueue(1), deliver(1), enqueue(2), left(1)])
    other = events.set_column(0, events.field("node"), pa.array(["b"] * 4))
    mixed = pa.concat_tables([events, other]).take([7, 2, 5, 0, 1, 6, 3, 4])

    rows = made(mixed, "lived")

    assert [(row["node"], row["msg_uid"], row["op"]) for row in rows] == [
        (node, 2, "enqueue") for node in dict.fromkeys(mixed["node"].to_pylist())
    ]


def test_columns_that_a_file_does_not_have_are_null() -> None:
    events = numbered([QUEUE | {"op": "checkpoint"}])
    few = events.select(["node", "seq", "ts", "op", "queue_id"]).append_column("count", pa.array([7]))
    file = pa.BufferOutputStream()
    pq.write_table(few, file)

    (row,) = made(next(read("x", file.getvalue(), None)), "kept")

    assert (row["quantity"], row["queue"], row["ts"]) == (7, None, events["ts"].cast(pa.int64())[0].as_py())


def test_columns_may_have_other_letters_and_texts_be_bytes() -> None:
    events = numbered([QUEUE | {"op": "checkpoint"}])
    ops = pa.array([b"checkpoint"]).dictionary_encode()
    odd = events.select(["node", "seq", "ts", "queue_id"]).append_column("op", ops)
    file = pa.BufferOutputStream()
    pq.write_table(odd.rename_columns([name.upper() for name in odd.column_names]), file)

    assert [row["op"] for row in made(next(read("x", file.getvalue(), None)), "kept")] == ["checkpoint"]


@pytest.mark.parametrize("name", ["node", "seq", "ts", "op"])
def test_a_file_without_the_required_columns_is_refused(name: str) -> None:
    file = pa.BufferOutputStream()
    pq.write_table(numbered([enqueue(1)]).drop_columns([name]), file)

    with pytest.raises(PipelineError, match=f"'x' is no file of a journal: it has no column '{name}'"):
        next(read("x", file.getvalue(), None))


def test_events_of_no_node_are_refused() -> None:
    with pytest.raises(PipelineError, match="1 events have no node"):
        made(numbered([enqueue(1), enqueue(2) | {"node": None}]), "kept")


def test_damage_is_reported_with_the_name_of_the_file() -> None:
    file = pa.BufferOutputStream()
    pq.write_table(numbered([enqueue(uid) for uid in range(1000)]), file, compression="zstd")
    whole = file.getvalue().to_pybytes()
    for damaged in (whole[:100], b"no Parquet at all", whole[:60] + b"damage" * 40 + whole[300:]):
        with pytest.raises(PipelineError, match="'x' cannot be read as a file of a journal"):
            list(read("x", pa.py_buffer(damaged), None))


def test_deliveries_in_order_are_one_row_and_others_are_each_their_own() -> None:
    rows = made(
        [
            *map(enqueue, range(6)),
            deliver(1),
            deliver(3),
            deliver(0, "d"),
            deliver(5, "d"),
            deliver(4, "d"),
        ],
        "placed",
    )

    reported = [
        tuple(row[name] for name in ("consumer", "msg_uid", "qpos", "last_qpos", "seq", "last_seq", "late"))
        for row in rows
    ]
    assert sorted(reported, key=lambda row: row[4]) == [
        ("c", None, 1, 3, 7, 8, False),
        ("d", 0, 0, 0, 9, 9, False),
        ("d", 5, 5, 5, 10, 10, False),
        ("d", 4, 4, 4, 11, 11, True),
    ]


def test_a_delivery_that_was_overtaken_keeps_its_life() -> None:
    events = [enqueue(1), enqueue(2), deliver(2), deliver(1), left(1), left(2)]
    assert ops(events) == ops(events, "kept") == [(1, "enqueue"), (1, "deliver"), (1, "ack")]


STEPS = st.one_of(
    st.tuples(st.just("went"), st.integers(0, 15), st.sampled_from("cd"), st.booleans()),
    st.just(("listed",)),
    st.just(("came",)),
)


def played(steps: list[tuple[Any, ...]]) -> list[Event]:
    """Deliveries of two queues, each message once, with restarts between, and some that came late."""
    events = [enqueue(uid) | _queue(uid) for uid in range(12)]
    waiting = list(range(12, 16))
    for step in steps:
        if step[0] == "went":
            uid = step[1] % (16 - len(waiting))
            events.append(deliver(uid, step[2], redelivered=step[3]) | _queue(uid))
        elif step[0] == "listed":
            events.append(listed() | _queue(len(events)))
        elif waiting:
            uid = waiting.pop(0)
            events.append(enqueue(uid) | _queue(uid))
    return events


def _queue(uid: int) -> Event:
    return {"queue_id": 1 + uid % 2, "queue": f"q{uid % 2}"}


@pytest.mark.nightly
@settings(SLOW, max_examples=20)
@given(
    steps=st.lists(STEPS, min_size=10, max_size=40),
    shares=st.lists(st.floats(0, 1), max_size=3),
    across=st.integers(1, 3),
)
def test_order_in_a_digest_is_order_in_its_events(
    spark: SparkSession,
    tmp_path_factory: pytest.TempPathFactory,
    steps: list[tuple[Any, ...]],
    shares: list[float],
    across: int,
) -> None:
    events = numbered(played(steps))
    events = events.take(sorted(range(events.num_rows), key=lambda seq: seq % across))
    cuts = sorted(int(share * events.num_rows) for share in shares)
    made_of = digested(spark, tmp_path_factory.mktemp("journal"), events, *cuts)

    rows = made_of.rows
    reordered = find_reordered(
        select_placed(rows), select_kept(rows), select_lived(rows), lambda: made_of.events
    )

    wanted = order(made_of.events, by_consumer=True)
    assert sorted(map(str, reordered.collect())) == sorted(map(str, wanted.collect()))


def test_files_come_as_bytes_where_the_journal_is_a_url(spark: SparkSession, tmp_path: Path) -> None:
    folder = tmp_path / "a b"
    own = digested(spark, folder, numbered([enqueue(1), deliver(1), enqueue(2), left(1), enqueue(3)]), 3)

    of_url = sealed_journal_digest(spark, f"file://{folder}/parquet")

    assert sorted(map(str, of_url.rows.collect())) == sorted(map(str, own.rows.collect()))
    assert select_kept(own.rows).count() == 0
    assert select_lived(own.rows).count() == 5


def test_a_life_that_was_over_in_an_earlier_file_is_looked_up(spark: SparkSession, tmp_path: Path) -> None:
    declared = QUEUE | {"op": "declare", "quantity": 0, "reason": "full"}
    events = [
        declared,
        enqueue(1),
        deliver(1),
        left(1),
        enqueue(2),
        left(2),
        left(1),
        deliver(2),
        deliver(3),
    ]

    report = audit(digested(spark, tmp_path, numbered(events), 6))

    reported = {kind: [row["msg_uid"] for row in report.rows.get(kind, [])] for kind in report.findings}
    assert {kind: uids for kind, uids in reported.items() if uids} == {
        "double_settled": [1],
        "delivered_after_settle": [2],
        "orphan": [3],
    }
    assert report.entries == 3
    assert report.others["ok"] == 0


def by(uid: int, consumer: str, op: str = "ack") -> Event:
    return left(uid, op, consumer=consumer, conn="x", channel=1)


def to(uid: int, consumer: str) -> Event:
    return by(uid, consumer, "deliver")


@pytest.mark.parametrize(
    ("life", "is_plain"),
    [
        ([to(1, "c"), by(1, "c")], True),
        ([to(1, "c"), by(1, "d")], False),
        ([to(1, "c"), by(1, "c", "requeue"), to(1, "d"), by(1, "d")], True),
        ([to(1, "c"), to(1, "c"), by(1, "c")], True),
        ([to(1, "c"), to(1, "d"), by(1, "d")], False),
        ([to(1, "c"), to(1, "d"), by(1, "c", "requeue"), by(1, "d")], False),
        ([to(1, "c"), by(1, "c", "requeue"), by(1, "c")], False),
        ([to(1, "c"), by(1, "d", "requeue"), to(1, "d"), by(1, "d")], False),
    ],
)
def test_a_life_is_left_out_only_if_the_holder_settled_or_returned_the_message(
    life: list[Event], is_plain: bool
) -> None:
    assert (ops([enqueue(1), *life]) == []) == is_plain


def test_acknowledgements_without_a_delivery_are_counted() -> None:
    events = [enqueue(1), enqueue(2), enqueue(3), by(1, "c"), to(2, "c"), by(2, "c"), left(3)]
    (sums,) = made(events, "moved")
    assert (sums["settled"], sums["unseen"]) == (3, 1)


def test_rows_of_streams_have_no_lives_and_count() -> None:
    events = [left(1, "append"), left(2, "append"), QUEUE | {"op": "trim", "quantity": 1}]
    assert ops(events) == []
    assert sum(row["change"] for row in made(events, "moved")) == 1


def test_a_gap_says_from_where_on_events_may_be_missing() -> None:
    gap = {"op": "gap", "quantity": 2}
    rows = made(table([enqueue(1) | {"seq": 1}, gap | {"node": "a", "seq": 5}]), "moved")
    assert [(row["gap"], row["excused"]) for row in rows if row["gap"]] == [(5, 3)]
