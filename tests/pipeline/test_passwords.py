"""No text that goes to logs or results has a password in it, however it was written."""

from __future__ import annotations

import traceback
from collections.abc import Callable

import pytest

from pipeline.command import main
from pipeline.connector.choices import Choices, OptionError
from pipeline.connector.server import Server, ServerError, make_server
from pipeline.journal.options import hide_password, is_served, journal_options

LISTED = "http://u:SECRET@h1:1, http://u:SECRET@h2:2/x"


@pytest.mark.parametrize(
    ("location", "shown"),
    [
        (LISTED, "http://h1:1, http://h2:2/x"),
        ("http://u:SECRET@h1,u:SECRET@h2", "http://h2"),
        ("http://u:SECRET/x@h:1/v", "http://h:1/v"),
        ("HTTPS://u:SECRET@h", "HTTPS://h"),
        ("amqp://u:SECRET,x@h", "amqp://h"),
        ("amqp://h1,amqp://h2:5/v", "amqp://h1,amqp://h2:5/v"),
        ("file:///a@b/c", "file:///a@b/c"),
        ("http://u:SECRET://x@h/", "http://h/"),
        ("http://u:SECRET,x://x@h", "http://h"),
        ("http://h1,http://u:SECRET://x@h2", "http://h1,http://h2"),
    ],
)
def test_a_journal_is_shown_without_passwords(location: str, shown: str) -> None:
    assert hide_password(location) == shown


def connector(**options: str) -> Server:
    return make_server(Choices({"url": "amqp://h", "retries": "0"} | options))


def journal(**options: str) -> object:
    return journal_options(options, streaming=False)


@pytest.mark.parametrize(
    ("read", "option", "value", "reason"),
    [
        (connector, "url", "amqp://u:SECRET/x@h", "'url' is 'amqp://...@h'"),
        (connector, "url", "amqp://u:SECRET#x@h", "'url' is 'amqp://...@h'"),
        (connector, "url", "amqp://u:1/SECRET@h", "'url' is 'amqp://...@h'"),
        (connector, "url", "amqp://SECRET?x@h", "'url' is 'amqp://...@h'"),
        (connector, "url", "amqp://u:SECRET://x@h/", "'url' is 'amqp://...@h/'"),
        (connector, "url", "amqp://h:5672/SECRET@vhost", "%40 for an @ behind the host"),
        (connector, "url", "amqp://u:SECRET,x@h", "'url' is 'amqp://u'"),
        (connector, "url", "amqp://u:SECRET[@h", "'url' is 'amqp://h'"),
        (connector, "url", "amqp://u:SECRET\u2100@h", "'url' is 'amqp://h'"),
        (connector, "url", "u:SECRET@h:1", "'url' is 'h:1'"),
        (connector, "url", "amqp://u:SECRET@h:99999", "'url' is 'amqp://h'"),
        (connector, "apiUrl", "u:SECRET@h:15672", "'apiUrl' is 'h:15672'"),
        (connector, "apiUrl", "ftp://u:SECRET@h", "'apiUrl' is 'ftp://h'"),
        (journal, "url", "http://u:SECRET/x@h", "'url' is 'http://...@h'"),
        (journal, "url", "http://u:SECRET[@h", "'url' is 'http://h'"),
        (journal, "path", "http://u:SECRET@h", "'path' is 'http://h'"),
    ],
)
def test_an_option_that_is_wrong_is_named_and_its_password_is_not(
    read: Callable[..., object], option: str, value: str, reason: str
) -> None:
    with pytest.raises(OptionError) as refused:
        read(**{option: value})

    text = "".join(traceback.format_exception(refused.value))
    assert reason in text
    assert "SECRET" not in text


@pytest.mark.parametrize("url", ["amqp://h/my@vhost", "amqp://[::1]/my@vhost", "amqp://u:p@h:1/my@vhost"])
def test_a_vhost_may_have_an_at_sign(url: str) -> None:
    assert connector(url=url).vhost == "my@vhost"


def test_a_broker_that_is_not_there_is_named_without_its_password() -> None:
    server = connector(apiUrl="http://u:SECRET@127.0.0.1:9/", password="SECRET")

    with pytest.raises(ServerError, match=r"cannot reach http://127\.0\.0\.1:9: ") as refused:
        server.get("whoami")

    assert "SECRET" not in str(refused.value) + repr(server)
    assert server.password.read() == "SECRET"


def test_a_setting_that_is_none_is_named_without_its_value(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["run", "audit", "--journal", "http://h", "--option", "pass word=SECRET"]

    assert main(words) == 1

    error = capsys.readouterr().err
    assert "--option 'pass word' is not KEY=VALUE" in error
    assert "SECRET" not in error


def test_the_case_of_a_scheme_does_not_count() -> None:
    assert is_served("HTTP://u:p@h")
    assert connector(apiUrl="HTTP://h").api == ("http://h",)
