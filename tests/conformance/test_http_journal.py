"""The journal over HTTP: its state, its files, and their bytes while written, sealed and deleted."""

from __future__ import annotations

import time
from collections.abc import Callable
from itertools import pairwise
from pathlib import Path
from typing import Any

import pika

from broker.journal.seal import delete_sealed, seal
from protocol.journal.decoder import Decoder
from protocol.journal.rows import EventRow, rows
from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

FULL = ("--journal", "full", "--node-name", "n-1")


def publish(daemon: Daemon, count: int, queue: str = "q") -> None:
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare(queue, durable=True)
        for number in range(count):
            channel.basic_publish("", queue, b"%d" % number)


def written(api: Api, at_least: int) -> dict[str, Any]:
    """Return the journal's state, as soon as at least so many events can be read."""
    late = time.monotonic() + PATIENCE_S
    while (answer := api.get("journal"))["written"] < at_least:
        assert time.monotonic() < late, answer
    assert isinstance(answer, dict)
    return answer


def events(api: Api, name: str) -> list[EventRow]:
    """The events of a raw file, all of which must be whole."""
    answer = api.ask("GET", "journal", "files", name)
    assert answer.status_code == 200, answer.text
    decoder = Decoder(answer.content)
    found = list(rows(decoder))
    assert not decoder.holes
    return found


def test_events_can_be_read_while_their_file_is_written(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api]
) -> None:
    daemon = start_daemon(*FULL)
    api = admin_of(daemon)
    answer = api.get("journal")
    assert (answer["node"], answer["level"], answer["limit"], answer["failure"]) == (
        "n-1",
        "full",
        "full",
        "",
    )
    begun = answer["next"] - 1  # events of the start
    assert answer["nodes"]["n-1"]["first"] == 1
    publish(daemon, 10)
    answer = written(api, begun + 21)  # declare, enqueue and confirm
    assert answer["nodes"] == {"n-1": {"first": 1, "next": answer["written"] + 1}}
    (file,) = api.get("journal", "files")["files"]
    assert (file["node"], file["state"], file["first"]) == ("n-1", "open", 1)
    assert file["last"] >= begun + 21
    found = events(api, file["name"])
    assert [row.seq for row in found[:21]] == list(range(1, 22))
    assert sum(row.op == "enqueue" for row in found) == 10


def test_a_journal_file_is_served_from_the_requested_byte(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api]
) -> None:
    daemon = start_daemon(*FULL)
    api = admin_of(daemon)
    publish(daemon, 5)
    written(api, 11)
    (file,) = api.get("journal", "files")["files"]
    where = ("journal", "files", file["name"])
    whole = api.ask("GET", *where).content
    assert len(whole) >= file["bytes"]
    part = api.ask("GET", *where, **{"from": "10", "to": "50"})
    assert (part.content, part.headers["content-length"]) == (whole[10:50], "40")
    assert api.ask("GET", *where, **{"from": "10", "to": str(2**40)}).content[:5] == whole[10:15]
    assert api.ask("GET", *where, **{"from": str(len(whole))}).content == b""
    refused = api.refused(416, "GET", *where, **{"from": str(2**40)})
    assert file["name"] in refused["reason"]
    api.refused(400, "GET", *where, **{"from": "50", "to": "10"})
    api.refused(400, "GET", *where, **{"from": "-1"})


def test_open_sealed_and_dropped_journal_files_are_listed_by_seq(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL, "--journal-file-bytes", "64KiB")
    api = admin_of(daemon)
    for events_of_all in (1201, 2401, 3601):  # each time more of them than a file may have
        publish(daemon, 600)
        written(api, events_of_all)
    publish(daemon, 600)
    written_status = written(api, 4801)
    listed = api.get("journal", "files")["files"]
    assert [file["state"] for file in listed[:-1]] == ["ended"] * (len(listed) - 1)
    assert len(listed) > 3
    for file, after in pairwise(listed):
        assert file["last"] + 1 == after["first"]
        assert [row.seq for row in events(api, file["name"])] == list(range(file["first"], file["last"] + 1))
    second = listed[1]
    (only,) = api.get("journal", "files", **{"from": str(second["last"]), "to": str(second["last"] + 1)})[
        "files"
    ]
    assert only == second
    page = api.get("journal", "files", limit="2")
    assert (page["files"], page["more"]) == (listed[:2], True)

    sealed = [each.sealed for each in seal(folder)]
    both = api.get("journal", "files", to=str(second["first"]))["files"]
    assert [(file["state"], file["first"], file["last"]) for file in both] == [
        ("sealed", 1, second["first"] - 1),
        ("ended", 1, second["first"] - 1),
    ]
    assert (both[0]["earliest"], both[0]["latest"]) == (sealed[0].earliest, sealed[0].latest)
    answer = api.ask("GET", "journal", "files", both[0]["name"])
    assert answer.content == (folder / sealed[0].file).read_bytes()

    assert delete_sealed(folder, time.time() + 10, 0)
    left = api.get("journal", "files")["files"]
    still_open = [
        file["state"] for file in listed if file["state"] == "open"
    ]  # none: the last one is full too
    assert [file["state"] for file in left] == ["sealed"] * len(sealed) + still_open
    refused = api.refused(404, "GET", "journal", "files", both[1]["name"])
    assert both[1]["name"] in refused["reason"]
    assert api.get("journal")["nodes"]["n-1"] == {"first": 1, "next": written_status["next"]}


def test_a_file_keeps_its_name_when_it_is_ended(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL, "--journal-file-s", "1")
    api = admin_of(daemon)
    publish(daemon, 3)
    written(api, 7)
    name = api.get("journal", "files")["files"][-1]["name"]  # there may be one before, ended already
    late = time.monotonic() + PATIENCE_S
    while not (folder / "live" / name).exists():
        assert time.monotonic() < late
    last = events(api, name)[-1].seq
    assert last >= 7
    for path in (folder / "live").iterdir():
        path.unlink(missing_ok=True)  # a file that has just been ended has another name
    answer = api.get("journal")["nodes"]["n-1"]
    assert answer["first"] > last, "what is there of a journal whose files are gone begins where they ended"
    assert answer["first"] <= answer["next"]


def test_only_names_of_the_list_are_files(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api], folder: Path
) -> None:
    daemon = start_daemon(*FULL)
    api = admin_of(daemon)
    publish(daemon, 1)
    written(api, 3)
    (folder / "live" / "secret").write_text("secret")
    open_name = api.get("journal", "files")["files"][0]["name"] + ".open"
    for name in ("secret", "../live/secret", "../../../etc/passwd", "n-1.ajl", open_name):
        refused = api.refused(404, "GET", "journal", "files", name)
        assert f"'{name}'" in refused["reason"]
    refused = api.refused(404, "GET", "journal", "files", node="n-2")
    assert "'n-2'" in refused["reason"]


def test_a_broker_that_journals_nothing_says_so(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api]
) -> None:
    daemon = start_daemon()
    api = admin_of(daemon)
    for path in (("journal",), ("journal", "files"), ("journal", "files", "n-1.ajl")):
        assert "journals nothing" in api.refused(404, "GET", *path)["reason"]
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("q", arguments={"x-journal": "full"})
    assert api.get("journal")["level"] == "off", "but one queue says otherwise"


def test_an_earlier_journal_is_served_also_by_a_broker_that_journals_nothing(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api]
) -> None:
    daemon = start_daemon(*FULL)
    publish(daemon, 3)
    daemon.stop()
    daemon = start_daemon("--node-name", "n-2")
    api = admin_of(daemon)
    assert api.get("journal")["nodes"] == {"n-1": {"first": 1, "next": None}}
    (file,) = api.get("journal", "files", node="n-1")["files"]
    assert (file["state"], file["last"]) == ("ended", None)
    assert events(api, file["name"])[-1].op == "end"


def test_the_journal_takes_the_monitoring_tag(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api]
) -> None:
    daemon = start_daemon(*FULL)
    api = admin_of(daemon)
    for tag, statuses in (
        ("management", [401] * 3),
        ("policymaker", [401] * 3),
        ("monitoring", [200, 200, 404]),
        ("administrator", [200, 200, 404]),
    ):
        api.put("users", tag, password="p", tags=tag)
        user = Api(daemon.admin, tag, "p")
        paths = (("journal",), ("journal", "files"), ("journal", "files", "n-1.ajl"))
        assert [user.ask("GET", *path).status_code for path in paths] == statuses, tag
        user.close()


def test_files_are_compared_with_the_manifest(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api], tmp_path: Path
) -> None:
    daemon = start_daemon(*FULL, "--journal-file-s", "1")
    folder = tmp_path / "data" / "journal"
    api = admin_of(daemon)
    written(api, 1)
    late = time.monotonic() + PATIENCE_S
    while not list(seal(folder)):
        assert time.monotonic() < late, "no file was ended"
        time.sleep(0.02)
    assert api.get("journal", "check") == {"faults": [], "files": 1, "next": None}
    (path,) = folder.glob("parquet/*/*/*.parquet")
    path.unlink()
    (fault,) = api.get("journal", "check")["faults"]
    assert (fault["what"], fault["file"]) == ("missing", str(path.relative_to(folder)))
    api.refused(400, "GET", "journal", "check", **{"from": "-1"})


def test_the_life_of_a_message_with_its_dead_letter(
    start_daemon: DaemonStarter, admin_of: Callable[[Daemon], Api]
) -> None:
    daemon = start_daemon(*FULL)
    api = admin_of(daemon)
    with amqp(daemon.address, "/") as channel:
        letters = {"x-dead-letter-exchange": "", "x-dead-letter-routing-key": "dead"}
        channel.queue_declare("q", arguments=letters)
        channel.queue_declare("dead")
        for name in ("--json", "order 17", "other"):
            channel.basic_publish("", "q", b"", pika.BasicProperties(message_id=name))
        for _ in range(3):
            channel.basic_reject(channel.basic_get("q")[0].delivery_tag, requeue=False)
        channel.basic_get("dead", auto_ack=True)
    written(api, api.get("journal")["next"] - 1)

    def life(**choice: str) -> list[dict[str, Any]]:
        answer = api.get("journal", "messages", **choice)
        assert (answer["more"], answer["damages"]) == (False, [])
        assert [each["seq"] for each in answer["events"]] == sorted(each["seq"] for each in answer["events"])
        return list(answer["events"])

    found = life(message_id="order 17")
    steps = [(each["op"], each["queue"]) for each in found if each["op"] != "confirm"]
    assert steps == [("enqueue", "q"), ("deliver", "q"), ("dead_letter", "q"), ("enqueue", "dead")]
    assert found[0]["user"] == "guest"
    assert life(msg_uid=str(found[0]["msg_uid"])) == found
    assert [each["message_id"] for each in life(message_id="--json")].count("--json") >= 1
    assert life(message_id="nobody's") == []
    for wrong in ({}, {"message_id": "a", "msg_uid": "1"}, {"message_id": "a\0b"}, {"msg_uid": "x"}):
        assert api.ask("GET", "journal", "messages", **wrong).status_code == 400, wrong
    api.put("users", "clerk", password="c", tags="management")
    clerk = Api(api.base, "clerk", "c")
    assert clerk.ask("GET", "journal", "messages", message_id="order 17").status_code == 401
    clerk.close()
