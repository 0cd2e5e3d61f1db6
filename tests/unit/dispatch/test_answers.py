"""Answers: what a status of HTTP, a Retry-After and an exit status mean."""

import pytest

from broker.dispatch.answers import (
    ACKNOWLEDGED,
    BUSY,
    FAILED,
    answer_of_exit,
    answer_of_http,
    hide_secrets,
    read_retry_after,
)
from config.targets import parse_url

DATE = 1_700_000_000_000  # 2023-11-14 22:13:20 UTC


@pytest.mark.parametrize("status", [200, 201, 202, 204, 299])
def test_2xx_acknowledges(status: int) -> None:
    assert answer_of_http(status, None, "", DATE).result == ACKNOWLEDGED


@pytest.mark.parametrize("status", [301, 307, 400, 404, 429, 500, 503])
def test_other_statuses_fail(status: int) -> None:
    answer = answer_of_http(status, None, "text", DATE)
    assert (answer.result, answer.status, answer.text) == (FAILED, str(status), "text")


@pytest.mark.parametrize("status", [429, 503])
def test_retry_after_asks_to_wait(status: int) -> None:
    answer = answer_of_http(status, "120", "", DATE)
    assert (answer.result, answer.wait_ms) == (BUSY, 120_000)
    assert answer_of_http(status, "soon", "", DATE).result == FAILED


def test_retry_after_of_another_status_means_nothing() -> None:
    assert answer_of_http(500, "120", "", DATE).result == FAILED


@pytest.mark.parametrize(
    ("text", "wait"),
    [
        ("0", 0),
        (" 7 ", 7000),
        ("Tue, 14 Nov 2023 22:13:30 GMT", 10_000),
        ("Tue, 14 Nov 2023 22:13:10 GMT", 0),
        ("Tuesday, 14-Nov-23 22:13:30 GMT", 10_000),
        ("Tue Nov 14 22:13:30 2023", 10_000),
        ("9" * 400, 10**12),
        ("-1", None),
        ("1.5", None),
        ("", None),
        ("Tue, 99 Nov 2023", None),
    ],
)
def test_retry_after_is_a_number_or_a_date(text: str, wait: int | None) -> None:
    assert read_retry_after(text, DATE) == wait


def test_exit_statuses() -> None:
    assert answer_of_exit(0, "").result == ACKNOWLEDGED
    assert (answer_of_exit(75, "full").result, answer_of_exit(75, "full").status) == (FAILED, "75")
    assert answer_of_exit(-9, "").text == "killed by signal 9"
    assert answer_of_exit(-9, "").status == "signal"


WITH_QUERY = parse_url("http://h/hook?api_key=k%21y-1234&x=1")


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("no such order", "no such order"),
        ("authorization failed for this user", "authorization failed for this user"),
        ("Basic authentication is required", "Basic authentication is required"),
        ("you sent s3cret!", "you sent ***"),
        ('{"echo": "to\\"ken with quotes"}', '{"echo": "***"}'),
        ("the key is MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw", "the key is ***"),
        ("http://h/hook?api_key=k%21y-1234&x=1: reset", "http://h/hook?***: reset"),
        ("wrong key k!y-1234", "wrong key ***"),
        ("see http://user:pa55@h/x and amqp://h/", "see http://***@h/x and amqp://h/"),
        ("Authorization: Bearer abcdef.ghi\nHost: h", "Authorization: ***\nHost: h"),
        ('{"Authorization": "Basic dXNlcjpw", "n": 1}', '{"Authorization": "***", "n": 1}'),
        ("[('authorization', 'x y'), ('Host', 'h')]", "[('authorization', '***'), ('Host', 'h')]"),
        ("got Bearer abcdef.ghi-jkl, sorry", "got Bearer ***, sorry"),
        ("cut: s3cre", "cut: ***"),
    ],
)
def test_what_a_target_says_is_shown_without_secrets(text: str, shown: str) -> None:
    secrets = [b"s3cret!\n", b'to"ken with quotes', b"whsec_MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"]

    assert hide_secrets(text, secrets, WITH_QUERY) == shown


def test_the_scheme_before_a_secret_is_no_part_of_it() -> None:
    assert hide_secrets("got t0ken-of-ours", [b"Token t0ken-of-ours"], None) == "got ***"
