"""Records and blocks of the journal: written rows are read back."""

import pytest

from protocol.journal import records as r
from protocol.journal.decoder import Decoder, JournalDamagedError
from protocol.journal.encoder import Encoder
from protocol.journal.names import DEPUTY, QUEUE, Name
from protocol.journal.rows import rows
from tests.support.docs.documents import DOCS
from tests.support.journal.handmade_journal import NODE, STARTED, EventWriter, rows_of


def test_an_event_is_decoded_with_its_names() -> None:
    scribe = EventWriter()
    scribe.tell(
        r.ENQUEUE, 3, 5, other=2, size=10, text="mé".encode(), flags=r.PERSISTENT, reason="dead_letter"
    )
    (row,) = rows_of(scribe.file())
    assert row._asdict() == {
        "node": NODE,
        "seq": 1,
        "ts": STARTED + 1,
        "op": "enqueue",
        "reason": "dead_letter",
        "vhost": "/",
        "queue": "q",
        "queue_id": 7,
        "msg_uid": 3,
        "origin_uid": 2,
        "qpos": 5,
        "first_qpos": None,
        "peer_queue": None,
        "exchange": "",
        "routing_key": "q",
        "user": "guest",
        "conn": "1.2.3.4:5 -> 6",
        "channel": 1,
        "consumer": None,
        "size": 10,
        "quantity": None,
        "unacked": None,
        "delivery_count": 0,
        "persistent": True,
        "redelivered": False,
        "auto_ack": False,
        "message_id": "mé",
        "text": None,
        "address": "1.2.3.4:5",
        "request": None,
    }


def test_a_consumer_that_acts_for_an_operator() -> None:
    encoder = Encoder(NODE, 1)
    deputy = Name(1, DEPUTY, ("get", "boss", "9.9.9.9:1", "POST /api/queues/%2F/q/get"))
    encoder.record(STARTED, r.ACK, 3, 5, 0, None, None, deputy, 0, 0, 0, 0, b"")
    (row,) = rows_of(encoder.header(STARTED) + encoder.take())
    assert (row.consumer, row.user, row.address, row.request) == deputy.fields
    assert (row.conn, row.channel) == (None, None)


def test_a_long_name_is_cut_between_characters() -> None:
    encoder = Encoder(NODE, 1)
    name = Name(1, QUEUE, ("/", "x" + "é" * 0x8000, "7"))
    encoder.record(STARTED, r.DECLARE, 0, -1, 0, name, None, None, 0, 0, 0, 0, b"")
    (row,) = rows_of(encoder.header(STARTED) + encoder.take())
    assert row.queue == "x" + "é" * 0x7FFF


def test_columns_of_each_operation() -> None:
    scribe = EventWriter()
    scribe.tell(r.DEAD_LETTER, 3, 5, reason="maxlen")
    scribe.tell(r.PURGE, place=9, other=4, size=6)
    scribe.tell(r.CHECKPOINT, place=9, other=2, size=6, reason="time")
    scribe.tell(r.ACK, 1, 1, flags=r.AUTO_ACK)
    scribe.tell(r.GAP, text=b"crash")
    scribe.tell(r.RECOVER, 4, 1, size=3)
    scribe.tell(r.RECOVER, size=1)
    scribe.tell(r.CHANGE, text=b"{}")
    scribe.tell(r.ROLLBACK, size=3, other=2, text=b"why")
    scribe.tell(r.TRIM, place=9, other=4, size=6)
    scribe.tell(r.APPEND, 8, 17, other=3, size=5, text=b"m8")
    died, purged, checked, settled, gap, one, all_of_them, *more = rows_of(scribe.file())
    changed, undone, trimmed, appended = more
    assert (died.peer_queue, died.exchange, died.reason) == ("other", None, "maxlen")
    assert (purged.first_qpos, purged.qpos, purged.quantity, purged.size) == (4, 9, 6, None)
    assert (checked.quantity, checked.unacked, checked.reason) == (6, 2, "time")
    assert (settled.consumer, settled.channel, settled.auto_ack) == ("ctag", 2, True)
    assert (gap.text, gap.size, gap.queue, gap.message_id) == ("crash", None, None, None)
    assert (gap.quantity, purged.user, purged.address) == (0, "boss", "9.9.9.9:1")
    assert purged.request == changed.request == "DELETE /api/queues/%2F/q/contents"
    assert (changed.text, changed.size, changed.conn, changed.channel) == ("{}", None, None, None)
    assert (undone.quantity, undone.unacked, undone.text) == (3, 2, "why")
    assert (trimmed.first_qpos, trimmed.qpos, trimmed.quantity) == (4, 9, 6)
    assert (appended.qpos, appended.origin_uid, appended.message_id) == (17, 3, "m8")
    assert (one.size, one.quantity, all_of_them.size, all_of_them.quantity) == (3, None, None, 1)


def test_values_too_large_for_their_column_are_cut() -> None:
    encoder = Encoder(NODE, 1)
    encoder.record(1, r.ENQUEUE, 1, 1, 0, None, None, None, 1 << 40, 0, 0, 1 << 20, "é".encode() * 200)
    (row,) = rows_of(encoder.header(1) + encoder.take())
    assert (row.size, row.delivery_count) == (r.SIZE_MAX, r.DELIVERIES_MAX)
    assert row.message_id == "é" * 127


def test_a_definition_may_be_longer_than_other_texts() -> None:
    encoder = Encoder(NODE, 1)
    for size in (r.CHANGE_MAX, r.CHANGE_MAX + 1):
        encoder.record(1, r.CHANGE, 0, -1, 0, None, None, None, 0, 0, 0, 0, b"x" * size)
    assert [len(row.text or "") for row in rows_of(encoder.header(1) + encoder.take())] == [r.CHANGE_MAX] * 2


def test_the_largest_numbers_are_decoded() -> None:
    encoder = Encoder(NODE, (1 << 62) - 1)
    name = Name((1 << 32) - 1, QUEUE, ("v", "x" * 70_000, str((1 << 62) - 1)))
    most = (1 << 62) - 1
    encoder.record(most, r.ENQUEUE, most, most, most, name, None, None, r.SIZE_MAX, 255, 0, 65535, b"x" * 255)
    (row,) = rows_of(encoder.header(1) + encoder.take())
    assert (row.seq, row.ts, row.msg_uid, row.qpos, row.origin_uid, row.queue_id) == (most,) * 6
    assert (row.size, row.delivery_count, row.queue) == (r.SIZE_MAX, 65535, "x" * 65535)
    assert row.message_id == "x" * 255


def test_time_never_goes_back() -> None:
    encoder = Encoder(NODE, 1)
    for time in (5, 3, 7):
        encoder.record(time, r.CONFIRM, 0, -1, 0, None, None, None, 1, 0, 0, 0, b"")
    assert [row.ts for row in rows_of(encoder.header(1) + encoder.take())] == [5, 5, 7]


def test_each_file_tells_its_names() -> None:
    scribe = EventWriter()
    scribe.life_of(1)
    first = scribe.file()
    scribe.encoder.end_file()
    scribe.life_of(2)
    second = scribe.file()
    assert {row.queue for row in rows_of(first) + rows_of(second)} == {"q"}
    assert [row.seq for row in rows_of(second)] == [4, 5, 6]


def test_a_file_defines_each_name_once() -> None:
    scribe = EventWriter()
    scribe.life_of(1)
    once = len(scribe.file())
    scribe.life_of(1)
    assert len(scribe.encoder.take()) < once - 100


def test_a_new_encoder_has_no_bytes() -> None:
    assert Encoder(NODE, 1).take() == b""


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (b"", "does not begin with 'AJL1'"),
        (b"AJL2" + bytes(40), "does not begin with 'AJL1'"),
        (b"AJL1\x03\x00" + bytes(40), "version 3, this program reads 1 to 2"),
        (Encoder(NODE, 1).header(5)[:-1], "header is damaged"),
        (Encoder(NODE, 1).header(5)[:-1] + b"?", "header is damaged"),
    ],
    ids=["nothing", "magic", "version", "cut", "changed"],
)
def test_data_that_is_no_journal(data: bytes, why: str) -> None:
    with pytest.raises(JournalDamagedError, match=why):
        Decoder(data)


def test_events_without_their_names_have_no_queue() -> None:
    scribe = EventWriter()
    scribe.life_of(1)
    data = scribe.file()
    decoder = Decoder(data)
    at = data.index(b"DEF1")
    broken = data[:at] + b"DEFX" + data[at + 4 :]
    decoder = Decoder(broken)
    found = list(rows(decoder))
    assert [(row.op, row.queue, row.queue_id, row.routing_key) for row in found] == [
        (op, None, None, None) for op in ("enqueue", "deliver", "ack")
    ]
    assert len(decoder.holes) == 1


def test_the_page_of_the_journal_names_each_operation() -> None:
    page = (DOCS / "data" / "journal.md").read_text(encoding="utf-8")
    assert [op for op in r.OPS[1:] if f"`{op}`" not in page] == []
