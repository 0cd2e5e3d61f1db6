"""Settings: forms, bounds and defaults; config/amqpd.toml in step with them."""

import re
import tomllib
from pathlib import Path

import pytest
from pydantic import ValidationError

from config import values
from config.settings import GIB, KIB, MIB, Settings, allowed_values, is_secret
from config.values import Endpoint

TOML = Path(__file__).parents[3] / "config" / "amqpd.toml"


def test_defaults() -> None:
    settings = Settings()
    assert settings.data_dir == Path("amqpd-data")
    assert settings.listen == (Endpoint("127.0.0.1", 5672),)
    assert settings.admin == Endpoint("127.0.0.1", 15672)
    assert (settings.default_user, settings.default_pass.get_secret_value()) == ("guest", "guest")
    assert (settings.frame_max, settings.channel_max, settings.heartbeat) == (131072, 2047, 60)
    assert (settings.message_size_max, settings.segment_bytes) == (128 * MIB, 64 * MIB)
    assert settings.consumer_timeout_ms == 0
    assert settings.memory_budget == int(values.read_memory_limit() * 0.4)
    assert (settings.memory_max, settings.disk_free_min) == (
        int(values.read_memory_limit() * 0.6),
        50_000_000,
    )


def test_settings_cannot_be_changed() -> None:
    with pytest.raises(ValidationError):
        Settings().heartbeat = 3


def test_a_secret_is_not_in_the_representation() -> None:
    settings = Settings.model_validate({"default_pass": "sesame"})
    assert "sesame" not in repr(settings) + str(settings) + settings.model_dump_json()
    assert is_secret("default_pass")
    assert not is_secret("default_user")


@pytest.mark.parametrize("name", Settings.model_fields)
def test_every_setting_has_a_description_and_its_allowed_values(name: str) -> None:
    assert (Settings.model_fields[name].description or "").endswith(".")
    assert allowed_values(name)


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("frame_max", 4096, 2**31 - 1),
        ("channel_max", 1, 65535),
        ("heartbeat", 0, 65535),
        ("handshake_timeout_s", 1, 3600),
        ("strangers_max", 1, 10**6),
        ("admin_header_timeout_ms", 100, 3_600_000),
        ("admin_body_timeout_ms", 100, 3_600_000),
        ("admin_connections_per_address", 1, 10**6),
        ("admin_connections", 1, 10**6),
        ("consumer_timeout_ms", 0, 315_360_000_000),
        ("message_size_max", 1, 512 * MIB),
        ("transaction_size_max", 1, 1024 * MIB),
        ("segment_bytes", 64 * KIB, GIB),
    ],
)
def test_bounds(name: str, least: int, most: int) -> None:
    for value in (least, most, str(least), str(most)):
        assert getattr(Settings.model_validate({name: value}), name) == int(value)
    for value in (least - 1, most + 1):
        with pytest.raises(ValidationError):
            Settings.model_validate({name: value})


@pytest.mark.parametrize("value", [True, 1.5, "x", "", None, [1], "1e3", "0x10"])
def test_invalid_whole_numbers(value: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"heartbeat": value})


@pytest.mark.parametrize(
    ("text", "host", "port", "shown"),
    [
        ("127.0.0.1:5672", "127.0.0.1", 5672, "127.0.0.1:5672"),
        ("[::1]:0", "::1", 0, "[::1]:0"),
        ("[fe80::1%eth0]:1", "fe80::1%eth0", 1, "[fe80::1%eth0]:1"),
        (" broker.example:65535 ", "broker.example", 65535, "broker.example:65535"),
    ],
)
def test_addresses(text: str, host: str, port: int, shown: str) -> None:
    found = values.parse_endpoint(text)
    assert found == Endpoint(host, port)
    assert str(found) == shown
    assert values.parse_endpoint(str(found)) == found


@pytest.mark.parametrize(
    "text",
    ["", "5672", ":5672", "host", "host:", "host:x", "host:65536", "host:-1", "::1:5672", "[::1]",
     "[::1]5672", "[host]:1", "a b:1", "host:1:2", "http://host:1", "host:٣", 5672, None],
)  # fmt: skip
def test_invalid_addresses(text: object) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        values.parse_endpoint(text)


def test_several_addresses() -> None:
    two = (Endpoint("127.0.0.1", 1), Endpoint("::1", 1))
    assert values.parse_endpoints("127.0.0.1:1, [::1]:1") == two
    assert values.parse_endpoints(["127.0.0.1:1", "[::1]:1"]) == two
    assert len(values.parse_endpoints("127.0.0.1:0,127.0.0.1:0")) == 2  # the system chooses two ports
    wrongs: tuple[object, ...] = ("", [], "127.0.0.1:1,", "127.0.0.1:1,127.0.0.1:1", 5, None)
    for wrong in wrongs:
        with pytest.raises(ValueError, match=r"\w"):
            values.parse_endpoints(wrong)


def test_any_number_of_addresses() -> None:
    nothings: tuple[object, ...] = ([], (), "off", "OFF", ["off"], ("OFF",))
    for nothing in nothings:
        assert values.parse_endpoints_or_off(nothing) == ()
    assert values.parse_endpoints_or_off("127.0.0.1:1") == (Endpoint("127.0.0.1", 1),)
    for wrong in ("", None, "127.0.0.1"):
        with pytest.raises(ValueError, match=r"\w"):
            values.parse_endpoints_or_off(wrong)


@pytest.mark.parametrize("value", ["", [], "CRAM-MD5", "PLAIN,", ["PLAIN", 5], 5, "ANONYMOUS"])
def test_invalid_sasl_mechanisms_are_refused(value: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"sasl_mechanisms": value})


@pytest.mark.parametrize("value", [-1, 1, 4095, 10**7 + 1])
def test_iterations_that_no_client_accepts(value: int) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"scram_iterations": value})


@pytest.mark.parametrize("value", ["", 5, ["x"]])
def test_invalid_user_names(value: object) -> None:
    with pytest.raises(ValidationError):
        Settings.model_validate({"anonymous_user": value})


def test_admin_can_be_off() -> None:
    assert Settings.model_validate({"admin": "off"}).admin is None
    assert Settings.model_validate({"admin": "OFF"}).admin is None


@pytest.mark.parametrize(
    ("value", "expected"),
    [(1024, 1024), ("1024", 1024), ("64MiB", 64 * MIB), ("64 mib", 64 * MIB), ("1.5 GB", 1_500_000_000),
     ("2kb", 2000), ("7 B", 7)],
)  # fmt: skip
def test_sizes(value: object, expected: int) -> None:
    assert values.parse_size(value) == expected


@pytest.mark.parametrize("value", ["", "MiB", "1.5", "1.5 B", "1 parsec", "-1MiB", True, 1.0, None, "40%"])
def test_invalid_sizes(value: object) -> None:
    with pytest.raises(ValueError, match="not a"):
        values.parse_size(value)


def test_a_share_of_the_memory() -> None:
    read = values.make_share_parser(lambda: 1000)
    assert (read("40%"), read("2.5 %"), read("100%"), read("2KiB"), read(7)) == (400, 25, 1000, 2048, 7)
    for wrong in ("0%", "101%", "%", "-5%"):
        with pytest.raises(ValueError, match="not a"):
            read(wrong)


def test_the_home_folder(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/somewhere")
    assert values.parse_folder("~/queue") == Path("/somewhere/queue")
    for wrong in ("", " ", 3, "a\0b"):
        with pytest.raises(ValueError, match="path"):
            values.parse_folder(wrong)


@pytest.mark.parametrize(
    ("membership", "limit"),
    [
        ("0::/system.slice/amqpd.service\n", "sys/fs/cgroup/system.slice/amqpd.service/memory.max"),
        ("0::/system.slice/amqpd.service\n", "sys/fs/cgroup/system.slice/memory.max"),
        ("0::/\n", "sys/fs/cgroup/memory.max"),
        ("0::/../..\n", "sys/fs/cgroup/memory.max"),
        ("4:cpu:/x\n5:memory:/docker/1\n", "sys/fs/cgroup/memory/docker/1/memory.limit_in_bytes"),
        ("5:memory:/docker/1\n", "sys/fs/cgroup/memory/memory.limit_in_bytes"),
    ],
)
def test_a_control_group_limits_the_memory(tmp_path: Path, membership: str, limit: str) -> None:
    for name, text in (("proc/self/cgroup", membership), (limit, "1234567\n")):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert values.read_memory_limit(tmp_path) == 1_234_567
    (tmp_path / limit).write_text("max\n")
    assert values.read_memory_limit(tmp_path) > 1_234_567


def test_the_file_has_every_key_at_its_default() -> None:
    content = tomllib.loads(TOML.read_text())
    assert list(content) == list(Settings.model_fields)
    assert Settings.model_validate(content) == Settings()


def test_the_file_has_a_comment_over_every_key() -> None:
    lines = TOML.read_text().splitlines()
    for number, line in enumerate(lines):
        if re.match(r"\w+ =", line) and not line.startswith("default_pass"):  # default_user's covers both
            assert lines[number - 1].startswith("# "), line
