"""Answers: what a status of HTTP, a Retry-After and an exit status mean."""

import pytest

from broker.dispatch.answers import (
    ACKNOWLEDGED,
    BUSY,
    FAILED,
    answer_of_exit,
    answer_of_http,
    read_retry_after,
)

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
