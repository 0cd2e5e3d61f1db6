"""The command line: flags, errors in a single line with status 2, and few imports at the start."""

import os
import re
import subprocess
import sys
import time
from pathlib import Path
from types import ModuleType

import pytest
from typer.testing import CliRunner, Result

import broker
import config
from broker.__main__ import foreign_package, main
from broker.cli import command_line
from broker.store.disk import RealDisk
from broker.store.recovery.sink import RecoverySink
from broker.store.sync import DiskSyncer
from config.loader import LoadedSettings, flag, variable
from config.settings import Settings
from tests.support.store.hand_log import file_log, files_of

ROOT = Path(__file__).parents[3]


class FakeDaemon(ModuleType):
    """Stands where the daemon's module stands, and keeps the settings that it was started with."""

    def __init__(self, status: int) -> None:
        super().__init__("broker.daemon")
        self.started: list[Settings] = []
        self._status = status

    def run(self, loaded: LoadedSettings) -> int:
        self.started.append(loaded.settings)
        return self._status


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in os.environ:
        if name.startswith("AMQPD_"):
            monkeypatch.delenv(name)


@pytest.fixture
def daemon(monkeypatch: pytest.MonkeyPatch) -> FakeDaemon:
    fake = FakeDaemon(0)
    monkeypatch.setitem(sys.modules, "broker.daemon", fake)
    return fake


def invoke(*arguments: str, **environ: str) -> Result:
    return CliRunner().invoke(command_line(arguments), list(arguments), env=environ)


def test_serve_runs_the_daemon_with_the_settings(daemon: FakeDaemon, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text("heartbeat = 5\nchannel_max = 5\n")
    result = invoke(
        "serve", "--config", str(file), "--listen", "127.0.0.1:0", "--listen", "[::1]:0", "--admin", "off",
        AMQPD_CHANNEL_MAX="6",
    )  # fmt: skip
    assert result.exit_code == 0, result.output
    (settings,) = daemon.started
    assert [str(endpoint) for endpoint in settings.listen] == ["127.0.0.1:0", "[::1]:0"]
    assert settings.admin is None
    assert (settings.heartbeat, settings.channel_max) == (5, 6)


def test_the_exit_status_is_the_daemons(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "broker.daemon", FakeDaemon(7))
    assert invoke("serve").exit_code == 7


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_every_setting_has_its_flag_in_the_help(command: str) -> None:
    text = re.sub(r"[\s│]+", " ", invoke(command, "--help", COLUMNS="200", TERM="dumb").output)
    for name in (*Settings.model_fields, "config"):
        assert flag(name) + " " in text
        assert f"({variable(name)})" in text


@pytest.mark.parametrize("command", ["serve", "check-config"])
def test_wrong_settings_are_a_line_each_and_status_2(command: str, daemon: FakeDaemon) -> None:
    result = invoke(command, "--frame-max", "1", "--default-pass", "", AMQPD_LISTN="x")
    assert result.exit_code == 2
    assert result.stdout == ""
    assert result.stderr.splitlines() == [
        "amqpd: AMQPD_LISTN (environment): no such setting; did you mean AMQPD_LISTEN or AMQPD_TLS_LISTEN?",
        "amqpd: default_pass = (not shown) (flag --default-pass): allowed: at least 1 character",
        "amqpd: frame_max = '1' (flag --frame-max): allowed: 4096 to 2147483647",
    ]
    assert daemon.started == []


def test_check_config_shows_each_setting_and_its_origin(daemon: FakeDaemon) -> None:
    result = invoke("check-config", "--admin", "off", AMQPD_DEFAULT_PASS="sesame", AMQPD_LISTEN="[::1]:1,h:2")
    assert result.exit_code == 0
    lines = dict(line.split(" = ", 1) for line in result.stdout.splitlines())
    assert list(lines) == list(Settings.model_fields)
    assert re.fullmatch(r'"off" +# flag --admin', lines["admin"])
    assert re.fullmatch(r'\["\[::1\]:1", "h:2"\] +# environment AMQPD_LISTEN', lines["listen"])
    assert re.fullmatch(r"131072 +# default", lines["frame_max"])
    assert re.fullmatch(r"\(not shown\) +# environment AMQPD_DEFAULT_PASS", lines["default_pass"])
    assert "sesame" not in result.output
    assert daemon.started == []


def test_the_output_of_check_config_is_an_equivalent_file(daemon: FakeDaemon, tmp_path: Path) -> None:
    flags = ["--anonymous-user", 'a"b\\c', "--data-dir", "d\x7f", "--listen", "h:1", "--log-format", "json"]
    for given in ([], [*flags, "--definitions-skip-unchanged", "false", "--tls-min-version", "1.3"]):
        shown = invoke("check-config", *given).stdout
        lines = [line for line in shown.splitlines() if not line.startswith("default_pass")]
        file = tmp_path / "amqpd.toml"
        file.write_text("\n".join(lines), encoding="utf-8")
        again = invoke("check-config", "--config", str(file))
        assert again.exit_code == 0, again.output
        values = [line.rsplit("  #", 1)[0].rstrip() for line in lines]
        for name in ("tls_certificate", "tls_key", "tls_ca", "load_definitions"):
            assert f'{name} = "none"' in values
        setting_lines = [line.rsplit("  #", 1)[0].rstrip() for line in again.stdout.splitlines()]
        assert [line for line in setting_lines if not line.startswith("default_pass")] == values


def test_version() -> None:
    expected = rf"amqpd {broker.__version__} \((compiled|pure Python)\), Python 3\.\d+\.\d+\w*\n"
    assert re.fullmatch(expected, invoke("version").stdout)
    assert invoke("--version").stdout == invoke("version").stdout


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A data folder whose log has the definitions of two queues, in a batch each."""
    syncer = DiskSyncer(RealDisk())
    log = file_log(str(tmp_path), RealDisk(), syncer, time.monotonic, list)
    log.recover(RecoverySink())
    for number, name in enumerate(("first", "second"), start=1):
        log.append_definition({"kind": "queue", "vhost": "/", "name": name, "number": number})
        log.commit()
    log.close()
    return tmp_path


def damage(folder: Path) -> Path:
    """Change a byte of the first queue's definition."""
    (segment,) = folder.glob("*.log")
    content = segment.read_bytes()
    assert content.count(b"first") == 1
    segment.write_bytes(content.replace(b"first", b"fir5t"))
    return segment


def test_check_of_a_sound_log(folder: Path) -> None:
    before = {path: path.read_bytes() for path in folder.glob("*.log")}
    for arguments, environ in (
        (["--data-dir", str(folder)], {}),
        (["--data-dir", str(folder), "--repair"], {}),
        ([], {"AMQPD_DATA_DIR": str(folder)}),
    ):
        result = invoke("check", *arguments, **environ)
        assert result.exit_code == 0, result.output
        assert "nothing is damaged" in result.stdout
    assert before == {path: path.read_bytes() for path in folder.glob("*.log")}


def test_check_names_the_damage_and_repair_ends_it(folder: Path) -> None:
    segment = damage(folder)
    damaged = segment.read_bytes()
    result = invoke("check", "--data-dir", str(folder))
    assert result.exit_code == 1
    assert f"damaged: {segment} at offset " in result.stdout
    assert "a repair would lose: 0 messages, 1 definitions" in result.stdout
    assert segment.read_bytes() == damaged
    result = invoke("check", "--data-dir", str(folder), "--repair")
    assert result.exit_code == 0, result.output
    assert "lost: 0 messages, 1 definitions" in result.stdout
    result = invoke("check", "--data-dir", str(folder))
    assert result.exit_code == 0, result.output


def test_check_while_the_log_is_in_use(folder: Path) -> None:
    log = file_log(str(folder), RealDisk(), DiskSyncer(RealDisk()), time.monotonic, list)
    files_of(log).lock()
    result = invoke("check", "--data-dir", str(folder))
    log.release()
    assert result.exit_code == 2
    assert result.stderr.startswith("amqpd: ")
    assert str(folder) in result.stderr


@pytest.mark.parametrize("name", ["nowhere", "other"])
def test_check_of_a_folder_without_a_log_creates_nothing(tmp_path: Path, name: str) -> None:
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "letter.txt").touch()
    result = invoke("check", "--repair", "--data-dir", str(tmp_path / name))
    assert result.exit_code == 2
    assert result.stderr == f"amqpd: no log in {tmp_path / name}\n"
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["letter.txt", "other"]


def test_bench_is_the_load_generator() -> None:
    result = invoke("bench", "--size", "1")
    assert result.exit_code == 2
    assert result.stderr.startswith("amqpd bench: ")


def test_an_unknown_flag_is_status_2() -> None:
    result = invoke("serve", "--lisen", "x")
    assert result.exit_code == 2
    assert "--lisen" in result.stderr


def test_no_command_shows_the_help() -> None:
    for command in ("serve", "check ", "check-config", "bench", "version"):
        assert command in invoke().output


def test_our_own_packages_are_ours() -> None:
    assert foreign_package() == ""


def test_a_foreign_package_ends_the_start(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(config, "OWNER", "somebody else")
    with pytest.raises(SystemExit) as caught:
        main()
    assert caught.value.code == 2
    error = capsys.readouterr().err
    assert error.startswith(f"amqpd: the package 'config' at {config.__file__} is not amqpd's; ")
    assert error.count("\n") == 1


def test_python_m_broker() -> None:
    command = [sys.executable, "-m", "broker", "serve", "--listen", "nowhere"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 2
    assert done.stderr.startswith("amqpd: listen = ['nowhere'] (flag --listen): the port is missing; ")
    assert done.stderr.count("\n") == 1


def test_the_command_line_imports_nothing_slow() -> None:
    slow = {
        "fastapi",
        "uvicorn",
        "starlette",
        "structlog",
        "prometheus_client",
        "argon2",
        "rich",
        "asyncio",
        "uvloop",
    }
    code = "import sys; from broker.cli import command_line; command_line(['serve']); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True)
    assert slow.isdisjoint(done.stdout.split())
