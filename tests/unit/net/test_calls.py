"""Calls of dispatchers: the library that may be missing, secrets, and the environment of commands."""

import os
from pathlib import Path

import pytest

from broker.core.errors import PreconditionFailed
from broker.dispatch.answers import UNREACHED
from broker.dispatch.definition import Reference, definition_of
from broker.dispatch.dispatchers import Dispatchers
from broker.dispatch.payload import SecretError
from broker.forwarding.uri import parse_uri
from broker.net import http_calls
from broker.net.calls import StoredSecrets, unsupported
from broker.net.commands import base_environment
from broker.net.outbound import tls_context
from config.targets import AllowList
from tests.support.daemon.certificates import Certificates
from tests.support.dispatch.dispatch_bench import ALLOWED, URL, DispatchBench


def test_without_the_library_a_url_is_refused_and_a_command_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(http_calls, "find_spec", lambda name: None)
    bench = DispatchBench()
    bench.queue()
    dispatchers = Dispatchers(bench.broker, AllowList(ALLOWED), unsupported)
    with pytest.raises(PreconditionFailed) as refusal:
        dispatchers.set(definition_of("/", "d", {"queue": "q", "url": URL}))
    assert refusal.value.text == (
        "dispatcher 'd' in vhost '/': calls by HTTP need aiohttp: install amqpd with the extra dispatch, "
        "pip install 'amqpd[dispatch]'"
    )
    dispatchers.set(definition_of("/", "d", {"queue": "q", "command": "/bin/true"}))
    assert len(dispatchers) == 1


def test_a_secret_is_read_again_after_a_while(tmp_path: Path) -> None:
    now = 100.0
    path = tmp_path / "secret"
    path.write_bytes(b"one")
    secrets, reference = StoredSecrets(lambda: now), Reference("file", str(path))
    assert secrets.read(reference) == b"one"
    path.write_bytes(b"two")
    now = 109.9
    assert secrets.read(reference) == b"one"
    now = 110.0

    assert secrets.read(reference) == b"two"


def test_a_secret_that_cannot_be_read_is_named_by_its_place(tmp_path: Path) -> None:
    path = tmp_path / "secret"
    secrets, reference = StoredSecrets(), Reference("file", str(path))
    with pytest.raises(SecretError, match=f"the file {path}, a secret, cannot be read: No such file"):
        secrets.read(reference)
    path.write_bytes(b"x" * 70_000)
    with pytest.raises(SecretError, match="has more than 65536 bytes"):
        secrets.read(reference)
    path.write_bytes(b"now it is there")
    assert secrets.read(reference) == b"now it is there"


def test_a_secret_is_not_read_from_a_fifo(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    with pytest.raises(SecretError, match=f"the file {path}, a secret, cannot be read: not a regular file"):
        StoredSecrets().read(Reference("file", str(path)))
    with pytest.raises(SecretError, match="not a regular file"):
        StoredSecrets().read(Reference("file", str(tmp_path)))


async def test_authorities_are_not_read_from_a_fifo(tmp_path: Path) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    bench = DispatchBench(allowed=("https://localhost",))
    bench.queue()
    bench.set(url="https://localhost/", ca=str(path))
    bench.publish("one")

    answer = await http_calls.HttpCalls().call(bench.caller.calls[0])

    assert answer.result == UNREACHED
    assert answer.text == f"'ca' {path}: not a regular file"


@pytest.mark.parametrize("name", ["cacertfile", "certfile", "keyfile"])
def test_tls_files_of_a_shovel_are_not_read_from_a_fifo(
    tmp_path: Path, name: str, certificates: Certificates
) -> None:
    path = tmp_path / "fifo"
    os.mkfifo(path)
    certificate = f"certfile={certificates.server}&" if name == "keyfile" else ""
    uri = parse_uri(f"amqps://h/?verify=verify_peer&{certificate}{name}={path}", "/", "src-uri")
    with pytest.raises(OSError, match="not a regular file"):
        tls_context(uri)


def test_old_secrets_are_forgotten(tmp_path: Path) -> None:
    now = 100.0
    secrets = StoredSecrets(lambda: now)
    for name in "abc":
        (tmp_path / name).write_text(name)
        secrets.read(Reference("file", str(tmp_path / name)))
    now = 110.0
    secrets.read(Reference("file", str(tmp_path / "a")))

    assert list(secrets._kept) == [Reference("file", str(tmp_path / "a"))]


def test_a_secret_may_be_a_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    reference = Reference("env", "HOOK_SECRET_OF_A_TEST")
    with pytest.raises(SecretError, match="the variable HOOK_SECRET_OF_A_TEST of the broker"):
        StoredSecrets().read(reference)
    monkeypatch.setenv("HOOK_SECRET_OF_A_TEST", "value")
    assert StoredSecrets().read(reference) == b"value"


def test_commands_get_few_variables_of_the_broker() -> None:
    given = {"PATH": "/bin", "AMQPD_DEFAULT_PASS": "x", "TZ": "UTC", "TOKEN": "y", "LD_PRELOAD": "z"}
    assert base_environment(given) == {"PATH": "/bin", "TZ": "UTC"}
