"""Commands of `amqpctl` on the broker as a whole, and the forms of its options and errors."""

import json
import os
import pty
import re
import signal
import socket
import stat
import subprocess
import sys
import tarfile
from collections.abc import Callable
from pathlib import Path

import pika
import pytest

from broker import __version__
from tests.support.admin.api import Api, amqp, fetch
from tests.support.daemon.amqpctl import PROGRAM, Amqpctl
from tests.support.daemon.certificates import Certificates, connect, secure_address
from tests.support.daemon.daemon import PATIENCE_S, ROOT, Address, Daemon, DaemonStarter


@pytest.fixture
def control(api: Api) -> Amqpctl:
    return Amqpctl(api.base)


def test_versions_and_signs_of_life_need_no_user(control: Amqpctl) -> None:
    assert control("--version").stdout == f"amqpctl {__version__}\n"
    assert control("version").stdout == f"{__version__}\n"
    assert control("server_version", user="nobody").stdout == f"{__version__}\n"
    assert control("ping", user="nobody").stdout == f"{control.url} answers\n"
    control("await_startup", user="nobody")
    unreachable = Amqpctl("http://127.0.0.1:1")("await_startup", "--timeout", "0", status=3)
    assert "set --host and --port, --url or AMQPCTL_URL" in unreachable.stderr


def test_options_are_taken_before_and_behind_the_command(control: Amqpctl, vhost: str) -> None:
    control("declare_queue", "a,b", "-p", vhost)
    columns = ("list_queues", "-p", vhost, "name", "messages")
    assert json.loads(control(*columns, "--format", "json").stdout) == [{"name": "a,b", "messages": 0}]
    assert control(*columns, "--formatter", "csv").stdout == 'name,messages\n"a,b",0\n'
    assert control(*columns, "--silent", form="tsv").stdout == "a,b\t0\n"
    host, port = control.url.removeprefix("http://").split(":")
    elsewhere = {"AMQPCTL_URL": "http://127.0.0.1:1"}
    control("ping", "--host", host, "--port", port, more=elsewhere)
    control("ping", "--url", control.url, more=elsewhere)
    control("ping", status=3, more=elsewhere)
    warned = control("list_queues", "-p", vhost, "name", "mesages")
    assert "no object has a field 'mesages'; fields: " in warned.stderr


def test_errors_say_what_to_do_next(control: Amqpctl, user: Callable[..., Api], vhost: str) -> None:
    refused = control("delete_vhost", "none", status=1)
    assert refused.stderr == "amqpctl: no vhost 'none'; 'amqpctl list_vhosts' lists what exists\n"
    user("management")
    name = f"{vhost}.0"
    refused = control("list_users", user=name, password="secret", status=1)
    assert f"'amqpctl set_user_tags {name} administrator'" in refused.stderr
    assert "refuses the log-in" not in refused.stderr
    refused = control("environment", "--port", "1", status=3)
    assert "no answer from http://127.0.0.1:1/api/" in refused.stderr
    assert "set --host and --port, --url or AMQPCTL_URL" in refused.stderr


def test_the_environment_is_shown_without_secrets(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon("--default-pass", "sesame", environment={"AMQPD_HEARTBEAT": "7"}).load_api()
    shown = Amqpctl(daemon.admin)("environment", form="json", password="sesame").stdout
    assert "sesame" not in shown
    settings = {row["name"]: (row["value"], row["source"]) for row in json.loads(shown)}
    assert settings["heartbeat"] == (7, "environment AMQPD_HEARTBEAT")
    assert settings["default_pass"] == ("(not shown)", "flag --default-pass")
    assert settings["frame_max"] == (131072, "default")


def test_settings_change_while_the_broker_runs(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon().load_api()
    control = Amqpctl(daemon.admin)
    control("set_log_level", "error")
    control("add_vhost", "unseen")
    control("set_log_level", "info")
    control("add_vhost", "seen")
    daemon.log.wait_for("changed by an operator.*/api/vhosts/seen")
    assert "/api/vhosts/unseen" not in daemon.log.text()
    control("set_vm_memory_high_watermark", "absolute", "1")
    assert "memory" in control.fact("status", "alarms")
    control("set_vm_memory_high_watermark", "0.9")
    control("set_disk_free_limit", "8000TiB")
    assert "disk" in control.fact("status", "alarms")
    control("set_disk_free_limit", "50MB")
    assert control.fact("status", "alarms") == "none"
    changed = {row["name"]: row for row in control.json("environment")}
    assert changed["disk_free_min"]["value"] == 50_000_000
    assert changed["disk_free_min"]["source"] == "an operator, until the next start"
    refused = control("set_log_level", "loud", status=1).stderr
    assert refused == (
        "amqpctl: setting 'log_level' cannot be 'loud', allowed: debug, info, warning or error\n"
    )
    control("set_vm_memory_high_watermark", "much", status=2)


def test_only_some_settings_change_while_the_broker_runs(api: Api) -> None:
    refusal = api.refused(400, "PUT", "config", "effective", "heartbeat", body={"value": 5})
    assert refusal["reason"] == (
        "setting 'heartbeat' needs a restart of the broker; "
        "changeable while it runs: disk_free_min, log_level, memory_max"
    )
    api.refused(404, "PUT", "config", "effective", "shoes", body={"value": 5})
    api.refused(400, "PUT", "config", "effective", "log_level", body={})


def test_the_broker_is_shut_down(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon().load_api()
    Amqpctl(daemon.admin)("shutdown", "--reason", "new disk")
    daemon.expect_exit(0)
    assert "new disk" in daemon.log.text()


def test_listeners_are_suspended_and_resumed(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    daemon = start_daemon(*certificates.options()).load_api()
    control = Amqpctl(daemon.admin)
    secure = secure_address(daemon)
    with amqp(daemon.address, "/") as channel:
        control("suspend_listeners")
        for address in (daemon.address, secure):
            with pytest.raises(ConnectionRefusedError):
                socket.create_connection(address)
        ready = fetch(f"{daemon.admin}/health/ready")
        assert (ready.status_code, ready.json()["reason"]) == (503, "the listeners are suspended")
        channel.queue_declare("still")
        with socket.create_server(daemon.address):
            refused = control("resume_listeners", status=1)
            assert "address already in use" in refused.stderr
        control("suspend_listeners")
        control("resume_listeners")
        control("resume_listeners")
    assert fetch(f"{daemon.admin}/health/ready").status_code == 200
    with amqp(daemon.address, "/") as channel:
        channel.queue_declare("again")
    connect(daemon, certificates.trusting()).close()
    api = Api(daemon.admin)
    (node,) = api.get("nodes")
    refused_body = api.refused(400, "PUT", "nodes", node["name"], "listeners", body={})
    assert refused_body["reason"] == "'suspended' is missing"
    api.close()


def test_top_shows_the_busiest_queues(control: Amqpctl, vhost: str, address: Address) -> None:
    for queue in ("few", "many"):
        control("declare_queue", queue, "-p", vhost)
    with amqp(address, vhost) as channel:
        for queue in ("few", "many", "many"):
            channel.basic_publish("", queue, b"x")
    rows = control.json("top", "--once", "--sort", "messages", "-p", vhost)
    assert [(row["queue"], row["ready"]) for row in rows] == [("many", 2), ("few", 1)]
    table = control("top", "--count", "1", "--sort", "messages", "-p", vhost).stdout.splitlines()
    assert [line.split()[0] for line in table] == ["queue", "many"]
    control("top", "--sort", "shoes", status=2)


def test_top_is_live_at_a_terminal(control: Amqpctl, vhost: str) -> None:
    control("declare_queue", "watched", "-p", vhost)
    ours, theirs = pty.openpty()
    environment = {"AMQPCTL_URL": control.url, "PATH": "/usr/bin:/bin", "TERM": "xterm", "COLUMNS": "120"}
    # a shell that has started the tests in the background ignores SIGINT
    heeds = "import signal; signal.signal(signal.SIGINT, signal.default_int_handler); "
    command = [sys.executable, "-c", heeds + PROGRAM, "top", "-p", vhost, "--interval", "0.2"]
    with subprocess.Popen(command, stdout=theirs, cwd=ROOT, env=environment) as top:
        os.close(theirs)
        shown = b""
        while shown.count(b"watched") < 2:  # the second one is a refresh
            shown += os.read(ours, 65536)
        top.send_signal(signal.SIGINT)
        while True:
            try:
                if not os.read(ours, 65536):
                    break
            except OSError:  # the other end is closed
                break
        assert top.wait(PATIENCE_S) == 0
    os.close(ours)
    assert b"alarms: none" in shown


def test_a_report_has_no_secrets(control: Amqpctl, vhost: str, tmp_path: Path) -> None:
    upstream = '{"uri": "amqp://guest:sesame@127.0.0.1:1"}'
    control("set_parameter", "federation-upstream", "up", upstream, "-p", vhost)
    control("declare_queue", "q", "--arguments", '{"x-note": "http://a:sesame@b/c"}', "-p", vhost)
    file = tmp_path / "report.tar.gz"
    control("diagnose", str(file))
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with tarfile.open(file) as archive:
        contents = {
            member.name.removeprefix("amqpd-report/"): extracted.read().decode()
            for member in archive
            if (extracted := archive.extractfile(member)) is not None
        }
    assert {"overview.json", "settings.json", "metrics.txt", "definitions.json", "about.json"} <= set(
        contents
    )
    assert not [
        name for name, text in contents.items() if re.search(r"sesame|\$argon2id\$|SCRAM-SHA-256\$", text)
    ]
    assert "amqp://guest:(removed)@127.0.0.1:1" in contents["definitions.json"]
    assert json.loads(contents["about.json"])["missing"] == {}
    printed = control("report").stdout
    assert "== queues" in printed
    assert "sesame" not in printed
    assert control.json("report")["alarms"] == "none"


def test_a_report_by_a_user_who_may_not_see_everything(
    control: Amqpctl, user: Callable[..., Api], vhost: str, tmp_path: Path
) -> None:
    user("monitoring")
    file = tmp_path / "report.tar.gz"
    done = control("diagnose", str(file), user=f"{vhost}.0", password="secret")
    assert f"amqpctl: 'definitions' is missing in {file}: Not administrator user; " in done.stderr
    refused = control("diagnose", str(file), user=f"{vhost}.0", password="wrong", status=1)
    assert "refuses the log-in" in refused.stderr


def test_tls(start_daemon: DaemonStarter, certificates: Certificates) -> None:
    ca = str(certificates.folder / "ca.pem")
    required = (
        "--admin-tls-verify",
        "required",
        "--tls-ca",
        ca,
        "--tls-certificate",
        str(certificates.server),
    )
    daemon: Daemon = start_daemon("--admin-tls-listen", "127.0.0.1:0", *required)
    control = Amqpctl(f"https://127.0.0.1:{daemon.admin_tls.port}")
    assert "by --ca or AMQPCTL_CA" in control("ping", status=3).stderr
    whole = certificates.client("operator")
    text = whole.read_text()
    split = text.index("-----BEGIN CERTIFICATE")
    key, certificate = certificates.folder / "own.key", certificates.folder / "own.crt"
    key.write_text(text[:split])
    certificate.write_text(text[split:])
    control("ping", "--ca", ca, "--cert", str(whole))
    control("ping", "--insecure", "--cert", str(certificate), "--key", str(key))
    assert "a key needs a certificate" in control("ping", "--ca", ca, "--key", str(key), status=2).stderr
    plain = Amqpctl(daemon.admin.replace("http:", "https:"))
    assert "check that the port speaks TLS" in plain("ping", status=3).stderr


@pytest.mark.parametrize("program", ["amqpctl", "amqpd"])
def test_shells_complete_commands(program: str) -> None:
    start = "control" if program == "amqpctl" else "main"
    command, expected = ("set_pol", "set_policy") if program == "amqpctl" else ("che", "check-config")
    environment = {
        "PATH": "/usr/bin:/bin",
        f"_{program.upper()}_COMPLETE": "complete_bash",
        "COMP_WORDS": f"{program} {command}",
        "COMP_CWORD": "1",
    }
    words = [sys.executable, "-c", f"from broker.__main__ import {start}; {start}()"]
    done = subprocess.run(words, cwd=ROOT, env=environment, capture_output=True, text=True, check=False)
    assert expected in done.stdout.split(), (done.stdout, done.stderr)


def test_all_connections_are_closed(control: Amqpctl, vhost: str, address: Address) -> None:
    with amqp(address, vhost) as first, amqp(address, vhost) as second:
        assert control("close_all_connections", "bye", "-p", vhost).stdout == "2\n"
        for channel in (first, second):
            with pytest.raises(pika.exceptions.AMQPError, match="bye"):
                channel.queue_declare("q")
