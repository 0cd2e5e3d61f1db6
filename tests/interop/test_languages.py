"""Clients of other languages, as Debian packages them: their programs in `clients/` go the same steps."""

import os
import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

import pytest

from tests.interop.program import PROGRAM_SECONDS, Program
from tests.support.daemon.daemon import Daemon, DaemonStarter

CLIENTS = Path(__file__).with_name("clients")
STEPS = (
    "connected",
    "declared",
    "confirmed",
    "returned",
    "carried 3 MiB",
    "consumed with prefetch",
    "requeued",
    "dead-lettered",
    "got",
    "replied directly",
    "committed and rolled back",
    "told of the deleted queue",
    "404 NOT_FOUND - no queue 'missing' in vhost '/'",
    "406 PRECONDITION_FAILED - inequivalent arg 'x-max-length' for queue 'orders' in vhost '/': "
    "received '5' but current is '1000'",
    "restart the broker",
    "recovered",
    "closed",
)
"""The output of each program. After "restart the broker" a program waits for a line of standard input."""


class Language(NamedTuple):
    """The command of a program; `probe` succeeds where its needs are met, `build` fills its folder first."""

    probe: Sequence[str]
    command: Sequence[str | Path]
    build: Sequence[str | Path] = ()


JARS = "/usr/share/java/amqp-client.jar:/usr/share/java/slf4j-api.jar"
GO = ("GO111MODULE=off", "GOPATH=/usr/share/gocode", "go")  # where Debian has Go's libraries
LANGUAGES = {
    "Java": Language(
        probe=("javap", "-cp", JARS, "com.rabbitmq.client.Connection"),
        command=("java", "-cp", JARS, CLIENTS / "Client.java"),
    ),
    "Ruby": Language(probe=("ruby", "-rbunny", "-e", ""), command=("ruby", CLIENTS / "client.rb")),
    "PHP": Language(
        probe=("php", "-r", "require 'PhpAmqpLib/autoload.php';"),
        command=("php", CLIENTS / "client.php"),
    ),
    "Go": Language(
        probe=(*GO, "list", "github.com/rabbitmq/amqp091-go"),
        build=(*GO, "build", "-o", "client", CLIENTS / "client.go"),
        command=("./client",),
    ),
    "C": Language(
        probe=("cc", "-E", "-include", "amqp.h", "-x", "c", "/dev/null"),
        build=("cc", "-Wall", "-Wextra", "-o", "client", CLIENTS / "client.c", "-lrabbitmq"),
        command=("./client",),
    ),
}


CLOSING = LANGUAGES["Go"]._replace(build=(*GO, "build", "-o", "client", CLIENTS / "closing.go"))
"""Closes connections, also from two threads at once, and must never see a failure."""


def is_there(probe: Sequence[str]) -> bool:
    """Whether this machine has everything for a program."""
    probing = ["env", *probe]  # the exit status says if there is no such command
    return subprocess.run(probing, capture_output=True, timeout=PROGRAM_SECONDS, check=False).returncode == 0


def program_of(name: str, language: Language, daemon: Daemon, folder: Path) -> Program:
    """Build a program in `folder` and start it; skips the test if the language is not installed."""
    if not is_there(language.probe):
        assert os.environ.get("CI") != "true", f"{name} or its client is not installed"
        pytest.skip(f"{name} or its client is not installed")
    folder.mkdir()
    if language.build:
        building = ["env", f"XDG_CACHE_HOME={folder}", *language.build]
        subprocess.run(building, cwd=folder, check=True, timeout=PROGRAM_SECONDS)
    return Program(language.command, daemon, folder)


@pytest.mark.nightly
@pytest.mark.parametrize("name", LANGUAGES)
def test_language(name: str, start_daemon: DaemonStarter, tmp_path: Path) -> None:
    daemon = start_daemon()
    program = program_of(name, LANGUAGES[name], daemon, tmp_path / "program")
    program.wait_for("restart the broker")
    daemon.stop()
    start_daemon(port=daemon.address.port)
    program.go_on()
    program.expect_success()

    assert tuple(program.steps.lines) == STEPS, program.output_text()


@pytest.mark.nightly
def test_clean_closes_report_no_failure(start_daemon: DaemonStarter, tmp_path: Path) -> None:
    program = program_of("Go", CLOSING, start_daemon(), tmp_path / "program")
    program.expect_success()
    assert tuple(program.steps.lines) == ("closed by one", "closed by two"), program.output_text()
