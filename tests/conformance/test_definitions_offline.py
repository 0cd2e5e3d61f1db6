"""Definitions of a stopped broker, and a start with them."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import Any

import pika
import pytest

from broker.core.policies.policy import Policy
from broker.offline import open_log
from tests.support.admin.api import Api, amqp, fetch
from tests.support.admin.definitions import RABBITMQ, definitions_of_rabbitmq
from tests.support.daemon.daemon import ROOT, Daemon, DaemonStarter, clean_environment


def amqpd(*arguments: str, stdin: str = "", status: int = 0) -> subprocess.CompletedProcess[str]:
    """Run a command to its end."""
    done = subprocess.run(
        [sys.executable, "-m", "broker", *arguments],
        input=stdin,
        capture_output=True,
        text=True,
        cwd=ROOT,
        env=clean_environment(),
        check=False,
    )
    assert done.returncode == status, done.stderr
    return done


@pytest.fixture
def data(tmp_path: Path) -> str:
    return str(tmp_path / "data")


def test_definitions_go_into_a_new_folder_and_out_again(data: str, tmp_path: Path) -> None:
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)
    out = tmp_path / "out.json"
    amqpd("definitions", "export", str(out), "--data-dir", data)
    assert stat.S_IMODE(out.stat().st_mode) == 0o600, "it has password hashes"
    document = json.loads(out.read_text())
    assert {queue["name"] for queue in document["queues"]} == {"orders", "audit"}, (
        "transient ones do not last"
    )
    assert json.loads(amqpd("definitions", "export", "--data-dir", data).stdout) == document
    amqpd("definitions", "import", "-", "--data-dir", data, stdin=out.read_text())
    assert json.loads(amqpd("definitions", "export", "--data-dir", data).stdout) == document


def test_an_exported_file_is_private_whatever_file_was_there(data: str, tmp_path: Path) -> None:
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)
    there = tmp_path / "there.json"
    there.write_text("old")
    there.chmod(0o644)
    with there.open() as watched:
        (tmp_path / "link.json").symlink_to(there)
        amqpd("definitions", "export", str(tmp_path / "link.json"), "--data-dir", data)
        assert watched.read() == "old", "who had the file open learns nothing"
    assert stat.S_IMODE(there.stat().st_mode) == 0o600
    assert json.loads(there.read_text())["queues"]
    assert (tmp_path / "link.json").is_symlink()
    assert amqpd("definitions", "export", "/dev/stdout", "--data-dir", data).stdout == there.read_text()
    amqpd("definitions", "export", str(tmp_path / "no" / "where"), "--data-dir", data, status=2)
    assert sorted(each.name for each in tmp_path.iterdir()) == ["data", "link.json", "there.json"]


def test_exporting_only_reads(data: str) -> None:
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)
    before = segments(data)
    amqpd("definitions", "export", "--data-dir", data)
    assert segments(data) == before


def segments(data: str) -> dict[str, tuple[int, int]]:
    """The files of a log, how large and how old they are."""
    entries = [entry for entry in os.scandir(data) if entry.name != "lock"]
    return {entry.name: (entry.stat().st_size, entry.stat().st_mtime_ns) for entry in entries}


def test_a_single_virtual_host(data: str) -> None:
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)
    one = amqpd("definitions", "export", "--data-dir", data, "--vhost", "shop").stdout
    assert "users" not in json.loads(one)
    amqpd("definitions", "import", "-", "--data-dir", data, stdin='{"vhosts": [{"name": "copy"}]}')
    amqpd("definitions", "import", "-", "--data-dir", data, "--vhost", "copy", stdin=one)
    assert amqpd("definitions", "export", "--data-dir", data, "--vhost", "copy").stdout == one
    for command in (("export",), ("import", str(RABBITMQ))):
        done = amqpd("definitions", *command, "--data-dir", data, "--vhost", "nope", status=2)
        assert done.stderr == "amqpd: there is no vhost 'nope'\n"


def test_errors_are_listed_by_line_and_nothing_is_imported(data: str) -> None:
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)
    before = amqpd("definitions", "export", "--data-dir", data).stdout
    wrong = {"queues": [{"name": "new", "vhost": "/"}, {"name": "r", "vhost": "nope"}, {"name": "s"}]}
    done = amqpd("definitions", "import", "-", "--data-dir", data, stdin=json.dumps(wrong), status=2)
    assert done.stderr.splitlines() == [
        "amqpd: queue 'r' in vhost 'nope': there is no vhost 'nope', and the definitions make none",
        "amqpd: queue 's': 'vhost' is missing",
    ]
    assert amqpd("definitions", "export", "--data-dir", data).stdout == before
    refused = amqpd("definitions", "import", "-", "--data-dir", data, stdin="{", status=2)
    assert refused.stderr.startswith("amqpd: standard input: not JSON: ")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b'{"a": "\xff"}', "not JSON: not valid UTF-8 at byte 7"),
        (b"[" * 300 + b"]" * 300, "the JSON document is nested more than 128 levels deep"),
        (b"[" * 100_000, "the JSON document is nested more than 128 levels deep"),
    ],
)
def test_the_refusal_of_a_document_names_its_file(
    data: str, tmp_path: Path, content: bytes, words: str
) -> None:
    file = tmp_path / "definitions.json"
    file.write_bytes(content)
    refused = amqpd("definitions", "import", str(file), "--data-dir", data, status=2)
    assert refused.stderr == f"amqpd: {file}: {words}\n"


def test_definitions_that_the_log_cannot_keep_are_refused(data: str) -> None:
    for value in (r'"\ud800"', "NaN"):
        wrong = '{"global_parameters": [{"name": "g", "value": VALUE}]}'.replace("VALUE", value)
        done = amqpd("definitions", "import", "-", "--data-dir", data, stdin=wrong, status=2)
        assert "global_parameters[0].value" in done.stderr
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)


def test_export_without_a_log_fails_and_creates_no_folder(data: str) -> None:
    assert "no log in" in amqpd("definitions", "export", "--data-dir", data, status=2).stderr
    assert not Path(data).exists()


def test_a_running_broker_keeps_its_log_to_itself(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    start_daemon()
    data = str(tmp_path / "data")
    assert "in use" in amqpd("definitions", "export", "--data-dir", data, status=2).stderr
    assert "in use" in amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data, status=2).stderr


def test_messages_survive_an_import(start_daemon: DaemonStarter, data: str) -> None:
    daemon = start_daemon()
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("q", durable=True)
        for body in (b"seen", b"unseen"):
            channel.basic_publish("", "q", body, pika.BasicProperties(delivery_mode=2))
        channel.basic_get("q")
    daemon.stop()
    amqpd("definitions", "import", str(RABBITMQ), "--data-dir", data)
    with amqp(start_daemon().address, "/") as channel:
        found = [channel.basic_get("q", auto_ack=True) for _ in range(2)]
    assert [(method.redelivered, body) for method, _, body in found] == [(True, b"seen"), (False, b"unseen")]


def loading(folder: Path, document: Any) -> tuple[str, ...]:
    """Options for a daemon that loads definitions when it starts."""
    file = folder / "definitions.json"
    file.write_text(json.dumps(document))
    return ("--load-definitions", str(file))


def test_a_broker_loads_definitions_when_it_starts(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    document = definitions_of_rabbitmq()
    document["users"] = [{"name": "root", "password": "secret", "tags": "administrator"}]
    document["permissions"] = [{"user": "root", "vhost": "shop", "configure": ".*", "write": "", "read": ""}]
    document["topic_permissions"] = []
    options = loading(tmp_path, document)
    daemon = start_daemon(*options)
    daemon.log.wait_for("definitions loaded")
    api = Api(daemon.admin, "root", "secret")
    assert [user["name"] for user in api.get("users")] == ["root"], "the first user is the file's"
    assert fetch(api.url("whoami"), auth=("guest", "guest")).status_code == 401
    assert api.get("queues", "shop", "orders")["effective_policy_definition"]["max-length"] == 500000
    api.delete("queues", "shop", "orders")
    api.close()
    daemon.stop()
    daemon = start_daemon(*options)
    daemon.log.wait_for("definitions are those loaded before")
    api = Api(daemon.admin, "root", "secret")
    api.refused(404, "GET", "queues", "shop", "orders")
    assert "internal" not in str(api.get("definitions")["global_parameters"]).replace("internal_cluster", "")
    api.close()
    daemon.stop()
    daemon = start_daemon(*options, "--definitions-skip-unchanged", "false")
    daemon.log.wait_for("definitions loaded")
    api = Api(daemon.admin, "root", "secret")
    assert api.get("queues", "shop", "orders")["durable"] is True
    api.close()


@pytest.mark.parametrize(
    ("content", "words"),
    [
        ("{", "not JSON"),
        ("[" * 300 + "]" * 300, "the JSON document is nested more than 128 levels deep"),
        (r'{"vhosts": [{"name": "\ud800"}]}', "vhosts[0].name is not valid UTF-8"),
        ('{"queues": [{"name": "q", "vhost": "v"}]}', "queue 'q' in vhost 'v': there is no vhost 'v'"),
        (None, "cannot be read: No such file or directory"),
    ],
)
def test_definitions_that_cannot_be_loaded_end_the_start(
    tmp_path: Path, content: str | None, words: str
) -> None:
    file = tmp_path / "definitions.json"
    if content is not None:
        file.write_text(content)
    daemon = Daemon(tmp_path / "daemon", ["--load-definitions", str(file)])
    daemon.expect_exit(1)
    assert f"amqpd: load_definitions: {file}" in daemon.log.text()
    assert words in daemon.log.text()


def test_expressions_of_an_older_version_stop_no_start(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    """Invalid policies match nothing, invalid permissions allow nothing; the start and `check` name each."""
    folder = tmp_path / "data"
    daemon = start_daemon()
    api = Api(daemon.admin)
    api.put("queues", "/", "a-a", durable=True)
    api.put("users", "ann", password="ann", tags="management")
    daemon.stop()
    api.close()
    back = r"^(\w)-\1$"
    permission = {"name": "ann", "vhost": "/", "configure": ".*", "write": back, "read": ""}
    topic = {"name": "ann", "vhost": "/", "exchange": "t", "write": ".*", "read": "(?<=a)b"}
    with open_log(folder) as closed:
        closed.log.append_definition(Policy("p", back, {"max-length": 1}).change("/"))
        closed.log.append_definition(Policy("gone", back, {"max-length": 1}).change("/"))
        closed.log.append_definition({"kind": "policy.delete", "vhost": "/", "name": "gone"})
        closed.log.append_definition({"kind": "user.permission", **permission})
        closed.log.append_definition({"kind": "user.topic", **topic})
    reasons = [
        rf"the pattern '{back}' of policy 'p' in vhost '/' has a back reference, '\1' at character 7, "
        "which RE2 cannot match",
        rf"a permission of user 'ann' in vhost '/': '{back}' has a back reference, '\1' at character 7, "
        "which RE2 cannot match",
        "the topic permission of user 'ann' for exchange 't' in vhost '/': '(?<=a)b' has a look-behind, "
        "'(?<=' at character 1, which RE2 cannot match",
    ]
    checked = amqpd("check", "--data-dir", str(folder)).stdout.splitlines()
    assert [line for line in checked if "matches nothing" in line] == [
        f"matches nothing: {reason}" for reason in reasons
    ]
    daemon = start_daemon("--log-format", "json")
    logged = [json.loads(line) for line in daemon.log.lines if "expression matches nothing" in line]
    assert [(line["level"], line["reason"]) for line in logged] == [("warning", each) for each in reasons]
    api = Api(daemon.admin)
    assert api.get("queues", "/", "a-a")["policy"] is None
    assert api.get("policies", "/", "p")["pattern"] == back
    ann = Api(daemon.admin, "ann", "ann")
    assert "ann" in ann.refused(401, "PUT", "queues", "/", "b", body={"durable": True})["reason"]
    body = {"properties": {}, "routing_key": "a-a", "payload": "", "payload_encoding": "string"}
    refusal = ann.refused(401, "POST", "exchanges", "/", "amq.default", "publish", body=body)
    assert "ann" in refusal["reason"]
    exported = api.get("definitions")
    api.post("definitions", body=exported, status=204)  # existing objects are no error
    api.put("policies", "/", "p", status=204, pattern=back, definition={"max-length": 2})
    assert (
        back
        in api.refused(
            400, "PUT", "policies", "/", "q", body={"pattern": back, "definition": {"max-length": 2}}
        )["reason"]
    )
    same = {name: permission[name] for name in ("configure", "write", "read")}
    api.put("permissions", "/", "ann", status=204, **same)
    assert back in api.refused(400, "PUT", "permissions", "/", "ann", body={**same, "read": back})["reason"]
    api.close()
    ann.close()


def test_definitions_are_checked_without_a_broker(data: str) -> None:
    exchange = {"name": "odd", "vhost": "/", "type": "x-odd"}
    odd = json.dumps({"vhosts": [{"name": "/"}], "exchanges": [exchange]})
    line = "exchange 'odd' in vhost '/': unknown exchange type 'x-odd'"
    assert amqpd("definitions", "check", "-", stdin=odd, status=1).stdout == f"not supported: {line}\n"
    wrong = json.dumps({"queues": [{"name": "q", "vhost": "nowhere"}]})
    refused = amqpd("definitions", "check", "-", stdin=wrong, status=2)
    assert "queue 'q' in vhost 'nowhere'" in refused.stderr
    assert amqpd("definitions", "check", str(RABBITMQ)).stdout == "all definitions are supported\n"
    amqpd("definitions", "import", "-", "--data-dir", data, stdin=odd, status=2)
    done = amqpd("definitions", "import", "-", "--skip-unsupported", "--data-dir", data, stdin=odd)
    assert done.stderr == f"passed over: {line}\n"


def test_a_start_may_pass_over_unsupported_definitions(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    file = tmp_path / "rabbit.json"
    document = definitions_of_rabbitmq()
    document["exchanges"].append({"name": "odd", "vhost": "shop", "type": "x-odd"})
    file.write_text(json.dumps(document))
    daemon = start_daemon("--load-definitions", str(file), "--load-definitions-skip", "true")
    assert "definition passed over" in daemon.log.text()
    assert "unknown exchange type 'x-odd'" in daemon.log.text()


def test_a_file_that_is_no_json_makes_no_folder(data: str) -> None:
    refused = amqpd("definitions", "import", "-", "--data-dir", data, stdin="{", status=2)
    assert refused.stderr.startswith("amqpd: standard input: ")
    assert not Path(data).exists()
