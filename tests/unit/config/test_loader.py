"""Sources of settings, their precedence, and errors for invalid settings."""

from pathlib import Path

import pytest

from config.loader import SettingsError, flag, load, variable
from config.settings import Settings


def refusal(flags: dict[str, object], environ: dict[str, str] | None = None) -> str:
    with pytest.raises(SettingsError) as caught:
        load(flags, environ or {})
    return str(caught.value)


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "amqpd.toml"


def test_flag_before_environment_before_file_before_default(file: Path) -> None:
    file.write_text("heartbeat = 1\nchannel_max = 1\nframe_max = 5000\n")
    environ = {"AMQPD_HEARTBEAT": "2", "AMQPD_CHANNEL_MAX": "2", "AMQPD_CONFIG": str(file)}
    loaded = load({"heartbeat": "3", "listen": None}, environ)
    settings = loaded.settings
    assert (settings.heartbeat, settings.channel_max, settings.frame_max) == (3, 2, 5000)
    assert settings.listen == Settings().listen
    assert loaded.sources["heartbeat"] == "flag --heartbeat"
    assert loaded.sources["channel_max"] == "environment AMQPD_CHANNEL_MAX"
    assert loaded.sources["frame_max"] == f"file {file}:frame_max"
    assert loaded.sources["listen"] == "default"
    assert list(loaded.sources) == list(Settings.model_fields)


def test_the_flag_names_another_file_than_the_environment(file: Path) -> None:
    file.write_text("heartbeat = 1\n")
    assert load({"config": str(file)}, {"AMQPD_CONFIG": "/nowhere"}).settings.heartbeat == 1


def test_the_file_before_the_defaults_file_before_the_default(file: Path, tmp_path: Path) -> None:
    defaults = tmp_path / "defaults.toml"
    defaults.write_text('heartbeat = 1\nchannel_max = 1\nadmin = "h:1"\n')
    file.write_text('channel_max = 2\nadmin = "off"\n')
    loaded = load({"config": str(file)}, {"AMQPD_CONFIG_DEFAULTS": str(defaults)})
    settings = loaded.settings
    assert (settings.heartbeat, settings.channel_max, settings.admin) == (1, 2, None)
    assert loaded.sources["heartbeat"] == f"file {defaults}:heartbeat"
    assert loaded.sources["channel_max"] == f"file {file}:channel_max"
    assert load({}, {"AMQPD_CONFIG_DEFAULTS": str(defaults)}).settings.channel_max == 1


def test_a_wrong_defaults_file(tmp_path: Path) -> None:
    missing = {"AMQPD_CONFIG_DEFAULTS": str(tmp_path / "none.toml")}
    assert refusal({}, missing).startswith(
        f"config_defaults = '{tmp_path}/none.toml' (environment AMQPD_CONFIG"
    )
    defaults = tmp_path / "defaults.toml"
    defaults.write_text("lisen = 1\n")
    text = refusal({}, {"AMQPD_CONFIG_DEFAULTS": str(defaults)})
    assert text == f"lisen (file {defaults}:lisen): no such setting; did you mean listen or tls_listen?"


NEEDED: dict[str, dict[str, object]] = {
    "tls_listen": {"tls_certificate": "/c"},
    "websocket_tls_listen": {"tls_certificate": "/c"},
    "tls_certificate": {"tls_listen": ["h:1"]},
    "tls_key": {"tls_certificate": "/c", "tls_listen": ["h:1"]},
    "tls_ca": {"tls_verify": "optional", "tls_certificate": "/c", "tls_listen": ["h:1"]},
    "tls_verify": {"tls_ca": "/a", "tls_certificate": "/c", "tls_listen": ["h:1"]},
    "admin_tls_listen": {"tls_certificate": "/c"},
    "admin_tls_certificate": {"admin_tls_listen": ["h:1"]},
    "admin_tls_key": {"admin_tls_certificate": "/c", "admin_tls_listen": ["h:1"]},
    "admin_tls_ca": {
        "admin_tls_verify": "optional",
        "admin_tls_certificate": "/c",
        "admin_tls_listen": ["h:1"],
    },
    "admin_tls_verify": {
        "admin_tls_ca": "/a",
        "admin_tls_certificate": "/c",
        "admin_tls_listen": ["h:1"],
    },
}
"""Settings that make no sense without another one."""


@pytest.mark.parametrize(
    ("name", "text", "toml"),
    [
        ("data_dir", "/x", '"/x"'),
        ("listen", "127.0.0.1:1,[::1]:2", '["127.0.0.1:1", "[::1]:2"]'),
        ("tls_listen", "127.0.0.1:1,[::1]:2", '["127.0.0.1:1", "[::1]:2"]'),
        ("websocket_listen", "127.0.0.1:1,[::1]:2", '["127.0.0.1:1", "[::1]:2"]'),
        ("websocket_tls_listen", "127.0.0.1:1,[::1]:2", '["127.0.0.1:1", "[::1]:2"]'),
        ("websocket_origins", "http://a.b,HTTPS://c:1/", '["http://a.b", "https://c:1"]'),
        ("tls_certificate", "/x", '"/x"'),
        ("tls_key", "/x", '"/x"'),
        ("tls_ca", "/x", '"/x"'),
        ("tls_verify", "required", '"required"'),
        ("tls_min_version", "1.3", '"1.3"'),
        ("tls_login_from", "common_name", '"common_name"'),
        ("tls_login_san_type", "uri", '"uri"'),
        ("admin", "off", '"off"'),
        ("admin_tls_listen", "127.0.0.1:1,[::1]:2", '["127.0.0.1:1", "[::1]:2"]'),
        ("admin_tls_certificate", "/x", '"/x"'),
        ("admin_tls_key", "/x", '"/x"'),
        ("admin_tls_ca", "/x", '"/x"'),
        ("admin_tls_verify", "required", '"required"'),
        ("admin_origins", "http://a.b,HTTPS://c:1/", '["http://a.b", "https://c:1"]'),
        ("admin_page", "false", "false"),
        ("metrics_per_object", "true", "true"),
        ("admin_header_timeout_ms", "7000", "7000"),
        ("admin_body_timeout_ms", "7000", "7000"),
        ("admin_connections_per_address", "7", "7"),
        ("admin_connections", "7", "7"),
        ("default_user", "guest", '"guest"'),
        ("default_pass", "secret", '"secret"'),
        ("load_definitions", "/x.json", '"/x.json"'),
        ("definitions_skip_unchanged", "false", "false"),
        ("load_definitions_skip", "true", "true"),
        ("sasl_mechanisms", "external, PLAIN", '["EXTERNAL", "plain"]'),
        ("anonymous_user", "guest", '"guest"'),
        ("scram_iterations", "0", "0"),
        ("strangers_max", "7", "7"),
        ("log_format", "json", '"json"'),
        ("log_level", "debug", '"debug"'),
        ("frame_max", "8192", "8192"),
        ("channel_max", "7", "7"),
        ("heartbeat", "0", "0"),
        ("compat_product", "RabbitMQ", '"RabbitMQ"'),
        ("compat_version", "4.2.0", '"4.2.0"'),
        ("amqp_value_as_text", "true", "true"),
        ("auto_create", "^a,b{2,3}$", '["^a,b{2,3}$"]'),
        ("dispatch_allow", "https://a.example/x,/bin/true", '["https://a.example/x", "/bin/true"]'),
        ("handshake_timeout_s", "2", "2"),
        ("consumer_timeout_ms", "60000", "60000"),
        ("exclusive_drain_ms", "60000", "60000"),
        ("message_size_max", "1MiB", "1048576"),
        ("transaction_size_max", "1MiB", "1048576"),
        ("transaction_timeout_ms", "60000", "60000"),
        ("segment_bytes", "1MiB", "1048576"),
        ("sync_helper_lost", "refuse", '"refuse"'),
        ("memory_max", "1MiB", "1048576"),
        ("disk_free_min", "1MiB", "1048576"),
        ("memory_budget", "10%", '"10%"'),
        ("node_name", "a-1", '"a-1"'),
        ("journal", "FULL", '"full"'),
        ("journal_dir", "/j", '"/j"'),
        ("journal_sync", "second", '"second"'),
        ("journal_file_bytes", "1MiB", "1048576"),
        ("journal_file_s", "7", "7"),
        ("journal_free_min", "1MiB", "1048576"),
        ("journal_mandatory", "true", "true"),
    ],
)
def test_every_setting_by_flag_environment_and_file(name: str, text: str, toml: str, file: Path) -> None:
    file.write_text(f"{name} = {toml}\n")
    needed = NEEDED.get(name, {})
    flags: dict[str, object] = {name: text}
    by_flag = load(flags | needed, {}).settings
    assert (
        by_flag
        == load(needed, {variable(name): text}).settings
        == load({"config": str(file)} | needed, {}).settings
    )
    assert by_flag != Settings() or name == "default_user"


def test_the_cases_above_are_all_settings() -> None:
    mark = test_every_setting_by_flag_environment_and_file.pytestmark[0]  # type: ignore[attr-defined]
    assert [case[0] for case in mark.args[1]] == list(Settings.model_fields)


def test_names_of_flags_and_variables() -> None:
    assert (flag("data_dir"), variable("data_dir")) == ("--data-dir", "AMQPD_DATA_DIR")


def test_a_wrong_flag() -> None:
    text = refusal({"frame_max": "12"})
    assert text == "frame_max = '12' (flag --frame-max): allowed: 4096 to 2147483647"


def test_a_wrong_variable() -> None:
    text = refusal({}, {"AMQPD_LISTEN": "::1:5672"})
    assert text.startswith(
        "listen = '::1:5672' (environment AMQPD_LISTEN): an IPv6 address is written in brackets; "
    )
    assert "allowed: one or more of HOST:PORT" in text


def test_a_wrong_value_in_the_file(file: Path) -> None:
    file.write_text('log_level = "loud"\n')
    text = refusal({"config": str(file)})
    assert text == f"log_level = 'loud' (file {file}:log_level): allowed: debug, info, warning or error"


def test_a_value_that_another_place_overrules_is_not_judged(file: Path) -> None:
    file.write_text('log_level = "loud"\n')
    assert load({"config": str(file), "log_level": "error"}, {}).settings.log_level == "error"


def test_an_unknown_key_in_the_file(file: Path) -> None:
    file.write_text("lisen = 1\n[zzz]\nlisten = 1\n")
    first, second = refusal({"config": str(file)}).splitlines()
    assert first == f"lisen (file {file}:lisen): no such setting; did you mean listen or tls_listen?"
    assert second.startswith(
        f"zzz (file {file}:zzz): no such setting; allowed: admin, admin_body_timeout_ms, admin_connections, "
    )


def test_an_unknown_variable() -> None:
    text = refusal({}, {"AMQPD_DATADIR": "/x", "PATH": "/bin", "XAMQPD_FOO": ""})
    assert text == "AMQPD_DATADIR (environment): no such setting; did you mean AMQPD_DATA_DIR?"
    assert refusal({}, {"AMQPD_XYZZY": "1"}).startswith(
        "AMQPD_XYZZY (environment): no such setting; allowed: AMQPD_"
    )


@pytest.mark.parametrize(
    "name",
    ["AMQPD_COMPILE", "AMQPD_SERVICE_HOST", "AMQPD_SERVICE_PORT", "AMQPD_SERVICE_PORT_AMQP", "AMQPD_PORT",
     "AMQPD_PORT_5672_TCP", "AMQPD_PORT_5672_TCP_ADDR"],
)  # fmt: skip
def test_variables_that_platforms_set_are_not_settings(name: str) -> None:
    assert load({}, {name: "tcp://10.0.0.1:5672"}).settings == Settings()


def test_every_wrong_thing_is_named_in_a_line_of_its_own() -> None:
    lines = refusal({"heartbeat": "-1"}, {"AMQPD_CHANNEL_MAX": "", "AMQPD_FRAM_MAX": "1"}).splitlines()
    assert len(lines) == 3
    assert {line.split()[0] for line in lines} == {"heartbeat", "channel_max", "AMQPD_FRAM_MAX"}


def test_a_file_that_cannot_be_read(tmp_path: Path) -> None:
    missing = tmp_path / "none.toml"
    text = refusal({}, {"AMQPD_CONFIG": str(missing)})
    assert (
        text == f"config = '{missing}' (environment AMQPD_CONFIG): cannot be read: No such file or directory"
    )
    assert "Is a directory" in refusal({"config": str(tmp_path)})


@pytest.mark.parametrize("content", [b"listen = [", b"heartbeat = 1\nheartbeat = 2\n", b"\xff\xfe"])
def test_a_file_that_is_not_toml(file: Path, content: bytes) -> None:
    file.write_bytes(content)
    assert refusal({"config": str(file)}).startswith(f"config = '{file}' (flag --config): not a TOML file: ")


@pytest.mark.parametrize(
    "name", ["listen", "websocket_origins", "sasl_mechanisms", "default_pass", "heartbeat"]
)
@pytest.mark.parametrize(
    "value",
    [
        "NAME = " + "[" * 17 + "]" * 17,
        "NAME = " + "[" * 300 + "]" * 300,
        "NAME = " + "[" * 450 + "]" * 450,
        "NAME.a" + ".a" * 5000 + " = 1",
    ],
    ids=["17 lists", "300 lists", "450 lists", "5000 tables"],
)
def test_a_value_of_many_levels_is_refused_by_its_name(file: Path, name: str, value: str) -> None:
    file.write_text(value.replace("NAME", name))
    text = refusal({"config": str(file)})
    assert text.startswith(f"{name} (file {file}:{name}): nested more than 16 levels deep; allowed: ")


@pytest.mark.parametrize("value", ["[" * 5000 + "]" * 5000, "{a=" * 5000 + "1" + "}" * 5000, "[" * 100_000])
def test_a_file_of_many_levels_is_refused(file: Path, value: str) -> None:
    file.write_text(f"listen = {value}")
    text = refusal({"config": str(file)})
    assert text == f"config = '{file}' (flag --config): a value is nested more than 16 levels deep"


def test_a_file_that_is_not_utf_8_names_the_byte(file: Path) -> None:
    file.write_bytes(b'data_dir = "\xff"')
    text = refusal({"config": str(file)})
    assert text == f"config = '{file}' (flag --config): not a TOML file: not valid UTF-8 at byte 12"


@pytest.mark.parametrize("secret", ["", 12345, ["hush", "hush"]])
def test_a_secret_is_never_shown(secret: object, file: Path) -> None:
    file.write_text(f"default_pass = {secret!r}\nheartbeat = -1\n")
    text = refusal({"config": str(file)})
    assert f"default_pass = (not shown) (file {file}:default_pass): allowed: at least 1 character" in text
    assert "12345" not in text
    assert "hush" not in text


def test_a_first_user_from_anywhere_needs_a_password_of_its_own(file: Path) -> None:
    text = refusal({}, {"AMQPD_DEFAULT_USER": "admin"})
    assert text.startswith(
        "default_user = 'admin' (environment AMQPD_DEFAULT_USER): its password is missing; "
    )
    file.write_text('default_pass = "sesame"\n')
    assert load({"config": str(file)}, {"AMQPD_DEFAULT_USER": "admin"}).settings.default_user == "admin"
    assert load({}, {"AMQPD_DEFAULT_USER": "guest"}).settings.default_pass.get_secret_value() == "guest"


@pytest.mark.parametrize(
    ("name", "value", "needed"),
    [
        ("tls_listen", "127.0.0.1:5671", "tls_certificate"),
        ("websocket_tls_listen", "127.0.0.1:5671", "tls_certificate"),
        ("tls_verify", "optional", "tls_ca"),
        ("tls_ca", "/a", "tls_verify"),
        ("tls_key", "/k", "tls_certificate"),
        ("tls_certificate", "/c", "tls_listen"),
        ("tls_verify", "required", "tls_listen"),
        ("admin_tls_listen", "127.0.0.1:15671", "admin_tls_certificate"),
        ("admin_tls_verify", "optional", "admin_tls_ca"),
        ("admin_tls_ca", "/a", "admin_tls_verify"),
        ("admin_tls_key", "/k", "admin_tls_certificate"),
        ("admin_tls_certificate", "/c", "admin_tls_listen"),
        ("admin_tls_verify", "required", "admin_tls_listen"),
    ],
)
def test_settings_of_tls_that_would_be_without_effect(name: str, value: str, needed: str) -> None:
    nothing = "off" if needed.endswith(("tls_listen", "tls_verify")) else "none"
    given: list[dict[str, object]] = [{name: value}, {name: value, needed: nothing}]
    for flags in given:
        lines = refusal(flags).splitlines()
        wrong = f"{name} = '{value}' (flag --{name.replace('_', '-')}): {needed} is missing; "
        assert any(line.startswith(wrong) for line in lines)
    word = "off" if name.endswith(("tls_listen", "tls_verify")) else "none"
    assert load({name: word}, {}).settings == Settings()


def test_the_certificate_of_amqp_may_be_for_the_admin_port_alone() -> None:
    secure = {"admin_tls_listen": "h:1", "tls_certificate": "/c", "tls_key": "/k", "admin": "off"}
    assert load(secure, {}).settings.tls_certificate == Path("/c")
    verified = {**secure, "admin_tls_verify": "required", "tls_ca": "/a"}
    assert load(verified, {}).settings.tls_ca == Path("/a")
    files = {"admin_tls_certificate": "/c", "tls_certificate": "/d"}
    own: dict[str, object] = {"admin_tls_listen": "h:1", **files}
    assert "tls_certificate = '/d' (flag --tls-certificate): tls_listen is missing" in refusal(own)
    unused = own | {"tls_listen": "h:2", "admin_tls_verify": "required", "admin_tls_ca": "/a", "tls_ca": "/b"}
    assert "tls_ca = '/b' (flag --tls-ca): tls_verify is missing" in refusal(unused)


def test_a_certificate_may_be_for_websockets_alone() -> None:
    settings = load({"websocket_tls_listen": "h:1", "tls_certificate": "/c"}, {}).settings
    assert settings.tls_certificate == Path("/c")
    verified = {"websocket_tls_listen": "h:1", "tls_verify": "required", "tls_ca": "/a"}
    assert load({**verified, "tls_certificate": "/c"}, {}).settings.tls_listen == ()


def test_origins_of_web_pages() -> None:
    assert load({"websocket_origins": ["any"]}, {}).settings.websocket_origins == ("any",)
    assert load({"websocket_origins": "off"}, {}).settings.websocket_origins == ()
    for wrong in ("app.example.org", "https://", "https://a/path", "https://u@a", "*", "", "https://a b"):
        assert "no origin; allowed: any number of origins such as" in refusal({"websocket_origins": wrong})
    assert "not a list of origins" in refusal({"websocket_origins": 7})


def test_a_config_file_that_cannot_be_a_file() -> None:
    refused = refusal({"config": "~nobody-at-all/x"})
    assert refused == "config = '~nobody-at-all/x' (flag --config): the home folder is not known"
    assert "not a path" in refusal({"config": "a\0b"})


@pytest.mark.parametrize("name", ["frame_max", "message_size_max", "memory_max"])
@pytest.mark.parametrize("text", ["9" * 400, "9" * 5000, "9" * 400 + ".5GiB", "9" * 400 + ".5%"])
def test_absurdly_large_numbers_are_refused(name: str, text: str) -> None:
    assert refusal({name: text}).startswith(f"{name} = '999")


def test_a_file_with_a_number_of_many_digits(tmp_path: Path) -> None:
    file = tmp_path / "amqpd.toml"
    file.write_text("strangers_max = " + "9" * 5000)
    assert f"config = '{file}' (flag --config): not a TOML file: " in refusal({"config": str(file)})


def test_a_port_of_many_digits() -> None:
    assert "the port is not a number" in refusal({"admin": "h:" + "1" * 5000})


def test_an_empty_password_variable_does_not_leave_the_well_known_one() -> None:
    assert "default_pass = (not shown)" in refusal(
        {}, {"AMQPD_DEFAULT_USER": "admin", "AMQPD_DEFAULT_PASS": ""}
    )
