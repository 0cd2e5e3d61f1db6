"""Log lines: both forms, every source, nothing that a peer can forge, no secrets from local variables."""

import io
import json
import logging
import sys
import warnings
from collections.abc import Iterator
from typing import Any

import pytest
import structlog

from broker import logs


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def isatty(self) -> bool:
        return True


@pytest.fixture(autouse=True)
def restored() -> Iterator[None]:
    """Leave the process's logging as it was."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    levels = {name: logging.getLogger(name).level for name in logs.QUIET}
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for name, before in levels.items():
        logging.getLogger(name).setLevel(before)
    logging.captureWarnings(capture=False)
    structlog.reset_defaults()


def configured(
    log_format: str = "json", level: str = "info", stream: io.StringIO | None = None
) -> io.StringIO:
    out = io.StringIO() if stream is None else stream
    logs.configure(log_format, level, out)
    return out


def objects(out: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in out.getvalue().splitlines()]


def fail() -> None:
    secret = "open sesame"
    raise ValueError(f"{len(secret)} \x1b[31mred")


def test_json_is_one_object_per_line() -> None:
    out = configured()
    structlog.get_logger().info("connection refused", peer="10.0.0.1:9\nforged", code=403, raw=b"\x00")
    (line,) = objects(out)
    assert line["event"] == "connection refused"
    assert line["level"] == "info"
    assert line["peer"] == "10.0.0.1:9\nforged"
    assert (line["code"], line["raw"]) == (403, "b'\\x00'")
    assert line["time"].endswith("Z")


def test_the_standard_library_comes_out_in_the_same_form() -> None:
    out = configured()
    logging.getLogger("some.library").warning("lost %d", 3)
    (line,) = objects(out)
    assert line.keys() == {"event", "level", "time", "logger"}
    assert (line["event"], line["level"], line["logger"]) == ("lost 3", "warning", "some.library")


def test_warnings_are_logged() -> None:
    out = configured()
    with warnings.catch_warnings():
        warnings.simplefilter("always")
        warnings.warn("out of date", stacklevel=1)
    assert "out of date" in objects(out)[0]["event"]


@pytest.mark.parametrize(("level", "expected"), [("debug", 4), ("info", 3), ("warning", 2), ("error", 1)])
def test_the_level_applies_to_structlog_and_logging(level: str, expected: int) -> None:
    out = configured(level=level)
    for logger in (structlog.get_logger(), logging.getLogger("x")):
        for name in ("debug", "info", "warning", "error"):
            getattr(logger, name)("said")
    assert len(objects(out)) == 2 * expected


def test_library_messages_below_error_are_not_logged() -> None:
    out = configured(level="debug")
    logging.getLogger("uvicorn.error").info("Started server process")
    logging.getLogger("asyncio").debug("Using selector")
    assert objects(out) == []
    logging.getLogger("uvicorn.error").error("broken")
    assert [line["event"] for line in objects(out)] == ["broken"]


@pytest.mark.parametrize("log_format", ["json", "console"])
def test_an_exception_without_the_values_of_its_variables(log_format: str) -> None:
    out = configured(log_format)
    try:
        fail()
    except ValueError:
        structlog.get_logger().exception("failed", peer="p")
        logging.getLogger("x").exception("failed too")
    text = out.getvalue()
    assert text.count("in fail") == 2
    assert text.count("ValueError: 11 ") == 2
    assert "open sesame" not in text
    assert "\x1b" not in text


def test_console_for_people() -> None:
    out = configured("console")
    structlog.get_logger().warning("connection closed", peer="10.0.0.1:9", user="ann")
    (line,) = out.getvalue().splitlines()
    assert "[warning  ] connection closed" in line
    assert "peer=10.0.0.1:9" in line
    assert "user=ann" in line


@pytest.mark.parametrize("evil", ["a\nERROR forged", "a\r", "\x1b[2Jgone", "\x9b2J", "\u2028", "\u202egnp"])
def test_no_value_breaks_a_console_line(evil: str) -> None:
    out = configured("console")
    structlog.get_logger().info("refused", user=evil)
    logging.getLogger("x").warning("refused %s", evil)
    assert len(out.getvalue().splitlines()) == 2
    assert evil not in out.getvalue()
    assert out.getvalue().replace("\n", "").isprintable()


def test_letters_of_every_script_stay_as_they_are() -> None:
    out = configured("console")
    structlog.get_logger().info("hello", user="Αθηνά 東京")
    assert "Αθηνά 東京" in out.getvalue()


def test_colours_only_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NO_COLOR", raising=False)
    coloured = configured("console", stream=Terminal())
    structlog.get_logger().info("hello")
    assert "\x1b[" in coloured.getvalue()
    monkeypatch.setenv("NO_COLOR", "1")
    plain = configured("console", stream=Terminal())
    structlog.get_logger().info("hello")
    assert "\x1b[" not in plain.getvalue()


def test_loggers_that_exist_follow_a_later_configuration() -> None:
    logger = structlog.get_logger()
    first = configured("console")
    logger.info("one")
    second = configured("json", "error")
    logger.info("two")
    logger.error("three")
    assert "one" in first.getvalue()
    assert [line["event"] for line in objects(second)] == ["three"]


def test_standard_error_by_default(capsys: pytest.CaptureFixture[str]) -> None:
    logs.configure("json", "info")
    assert logging.getLogger().handlers[0].stream is sys.stderr  # type: ignore[attr-defined]
    structlog.get_logger().info("hello")
    captured = capsys.readouterr()
    assert captured.out == ""
    assert json.loads(captured.err)["event"] == "hello"


def test_each_kind_of_line_about_each_object_has_an_interval_of_its_own() -> None:
    out = configured()
    now = 100.0
    seldom = logs.SeldomEach(lambda: now, 10.0)
    log = structlog.get_logger()
    for _ in range(3):
        for event in ("call failed", "breaker open"):
            for name in "ab":
                seldom.warning(log, event, ("/", name), dispatcher=name)
    assert [(line["event"], line["dispatcher"]) for line in objects(out)] == [
        ("call failed", "a"),
        ("call failed", "b"),
        ("breaker open", "a"),
        ("breaker open", "b"),
    ]
    now = 110.0
    seldom.warning(log, "breaker open", ("/", "a"), dispatcher="a")

    assert objects(out)[-1]["not_logged"] == 2


def test_objects_beyond_the_bound_share_one_interval_until_others_are_idle() -> None:
    out = configured()
    now = 100.0
    seldom = logs.SeldomEach(lambda: now, 10.0, most=3)
    log = structlog.get_logger()
    for number in range(100):
        seldom.warning(log, "call failed", (str(number),), about=number)
    assert [line["about"] for line in objects(out)] == [0, 1, 2, 3]
    now = 110.0
    for number in range(50, 100):
        seldom.warning(log, "call failed", (str(number),), about=number)

    assert [line["about"] for line in objects(out)[4:]] == [50, 51, 52, 53]


def test_many_connections_do_not_drive_changes_out_of_the_audit_log() -> None:
    configured()
    log = structlog.get_logger("amqpd.audit")
    log.info("changed by an operator", path="/api/queues/%2F/kept")
    for number in range(logs.AUDIT_MAX + 1):
        log.info("connection opened", number=number)
    lines = logs.recent_audit()
    assert sum(line["event"] == "connection opened" for line in lines) == logs.AUDIT_MAX
    assert lines[-1]["number"] == str(logs.AUDIT_MAX)
    assert "/api/queues/%2F/kept" in [line.get("path") for line in lines]
