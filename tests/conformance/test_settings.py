"""Settings of the real process: flags win over the environment, that over the file, that over the default."""

from pathlib import Path

import pytest
from pamqp.commands import Connection

from broker import __version__ as amqpd_version
from tests.support.amqp091.peer import Dialler, Peer
from tests.support.amqp10.peer import Meet
from tests.support.daemon.daemon import Daemon, DaemonStarter


def offer(dial: Dialler, daemon: Daemon) -> Connection.Tune:
    """Return the daemon's connection.tune."""
    peer = dial(daemon.address)
    peer.start()
    peer.login()
    return peer.expect(Connection.Tune)


def test_each_source_wins_over_the_next(tmp_path: Path, start_daemon: DaemonStarter, dial: Dialler) -> None:
    file = tmp_path / "amqpd.toml"
    file.write_text("heartbeat = 11\nchannel_max = 111\nframe_max = 11111\n")
    environment = {"AMQPD_CONFIG": str(file), "AMQPD_HEARTBEAT": "22", "AMQPD_CHANNEL_MAX": "222"}
    daemon = start_daemon("--heartbeat", "33", environment=environment)
    tune = offer(dial, daemon)
    assert (tune.heartbeat, tune.channel_max, tune.frame_max) == (33, 222, 11111)


def test_the_file_may_be_named_by_a_flag(tmp_path: Path, start_daemon: DaemonStarter, dial: Dialler) -> None:
    file = tmp_path / "amqpd.toml"
    file.write_text("heartbeat = 11\n")
    tune = offer(dial, start_daemon("--config", str(file)))
    assert (tune.heartbeat, tune.channel_max, tune.frame_max) == (11, 2047, 131072)


@pytest.mark.parametrize(
    ("settings", "expected"),
    [
        ({}, ("amqpd", amqpd_version, amqpd_version)),
        ({"AMQPD_COMPAT_PRODUCT": "RabbitMQ"}, ("RabbitMQ", "3.13.7", "4.2.0")),
        (
            {"AMQPD_COMPAT_PRODUCT": "RabbitMQ", "AMQPD_COMPAT_VERSION": "3.2.0"},
            ("RabbitMQ", "3.2.0", "3.2.0"),
        ),
        ({"AMQPD_COMPAT_PRODUCT": "other"}, ("other", amqpd_version, amqpd_version)),
    ],
)
def test_the_compatibility_product_is_announced_in_both_protocols(
    start_daemon: DaemonStarter,
    dial: Dialler,
    meet: Meet,
    settings: dict[str, str],
    expected: tuple[str, str, str],
) -> None:
    daemon = start_daemon(environment=settings)
    reported = dial(daemon.address).start().server_properties
    assert (reported["product"], reported["version"]) == expected[:2]
    opened = meet(daemon.address).open()
    assert opened.container_id == "amqpd"
    properties = {str(name): value for name, value in (opened.properties or {}).items()}
    assert (properties["product"], properties["version"]) == (expected[0], expected[2])


def test_addresses_and_folder_from_the_environment(tmp_path: Path) -> None:
    environment = {
        "AMQPD_LISTEN": "127.0.0.1:0",
        "AMQPD_ADMIN": "127.0.0.1:0",
        "AMQPD_DATA_DIR": str(tmp_path / "from-environment"),
    }
    daemon = Daemon(tmp_path, environment=environment, listen=False).wait_until_ready()
    try:
        assert daemon.ready is not None
        assert daemon.ready["data"] == str(tmp_path / "from-environment")
        assert (tmp_path / "from-environment").is_dir()
        Peer(daemon.address).open().close()
    finally:
        daemon.stop()


def test_the_ready_line_names_the_flavour(daemon: Daemon) -> None:
    assert daemon.ready is not None
    assert "compiled" in daemon.ready.string or "pure Python" in daemon.ready.string
    assert daemon.stdout.lines == [daemon.ready.string]  # a single line, and nothing else


@pytest.mark.parametrize(
    ("text", "logged_words"),
    [
        ("hartbeat = 5\n", ["hartbeat", "amqpd.toml"]),
        ("heartbeat = -1\n", ["heartbeat", "amqpd.toml", "0", "65535"]),
        ('heartbeat = "often"\n', ["heartbeat", "amqpd.toml"]),
        ("frame_max = 4095\n", ["frame_max", "amqpd.toml", "4096"]),
        ("heartbeat = \n", ["amqpd.toml"]),
    ],
    ids=["unknown-key", "range", "type", "too-small", "not-toml"],
)
def test_a_wrong_file_ends_the_start(tmp_path: Path, text: str, logged_words: list[str]) -> None:
    file = tmp_path / "amqpd.toml"
    file.write_text(text)
    daemon = Daemon(tmp_path, ["--config", str(file)])
    with pytest.raises(AssertionError, match=r"not ready; exit [1-9]"):
        daemon.wait_until_ready()
    assert [word for word in logged_words if word not in daemon.log.text()] == []
    assert "Traceback" not in daemon.log.text()


@pytest.mark.parametrize(
    ("options", "environment", "logged_words"),
    [
        (["--heartbeat", "-5"], {}, ["heartbeat", "65535"]),
        ([], {"AMQPD_HEARTBEAT": "often"}, ["AMQPD_HEARTBEAT"]),
        (["--listen", "nonsense"], {}, ["listen"]),
        (["--config", "/no/such/file.toml"], {}, ["/no/such/file.toml"]),
    ],
    ids=["flag", "environment", "address", "no-file"],
)
def test_a_wrong_flag_or_variable_ends_the_start(
    tmp_path: Path, options: list[str], environment: dict[str, str], logged_words: list[str]
) -> None:
    daemon = Daemon(tmp_path, options, environment)
    with pytest.raises(AssertionError, match=r"not ready; exit [1-9]"):
        daemon.wait_until_ready()
    assert [word for word in logged_words if word not in daemon.log.text()] == []
    assert "Traceback" not in daemon.log.text()


def test_the_first_user(start_daemon: DaemonStarter, dial: Dialler) -> None:
    environment = {"AMQPD_DEFAULT_USER": "alice", "AMQPD_DEFAULT_PASS": "secret"}
    daemon = start_daemon(environment=environment)
    for user, password, welcome in (
        ("alice", "secret", True),
        ("alice", "wrong", False),
        ("guest", "guest", False),
        ("alice", "secret", True),
    ):
        peer = dial(daemon.address)
        peer.start()
        peer.login(user, password)
        if welcome:
            peer.tune()
        else:
            peer.expect_close(403)
    daemon.stop()
    again = start_daemon(environment={"AMQPD_DEFAULT_USER": "bob", "AMQPD_DEFAULT_PASS": "other"})
    peer = dial(again.address)
    peer.start()
    peer.login("alice", "secret")  # there was a user already: no other is made
    peer.tune()
    peer = dial(again.address)
    peer.start()
    peer.login("bob", "other")
    peer.expect_close(403)


def test_a_port_that_is_taken(tmp_path: Path, start_daemon: DaemonStarter) -> None:
    host, port = start_daemon().address
    late = Daemon(tmp_path / "late", port=port)
    late.expect_exit(1)
    reported = (
        f"amqpd: cannot listen on {host}:{port} for AMQP: address already in use; set --listen HOST:PORT"
    )
    assert reported in late.log.text()


def test_a_data_folder_that_cannot_be_used(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_text("no folder")
    for folder in (file, file / "data", file / "parent" / "deep"):
        daemon = Daemon(tmp_path / f"for-{folder.name}", data_dir=folder)
        daemon.expect_exit(1)
        assert f"amqpd: cannot use the data folder {folder}: Not a directory" in daemon.log.text()
        assert "set --data-dir FOLDER (AMQPD_DATA_DIR)" in daemon.log.text()
