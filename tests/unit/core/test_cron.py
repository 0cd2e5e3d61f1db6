"""Dates of cron expressions, and the windows that begin at them."""

import pytest

from broker.core.cron import NO_DATE, Cron, Windows

DATE = 1_700_000_000_000  # 2023-11-14T22:13:20Z
MINUTE = 60_000
MIDNIGHT = 1_700_006_400_000


def test_the_next_date_is_later_than_the_given_one() -> None:
    cron = Cron("0 0 * * *")
    assert cron.next_after(DATE) == MIDNIGHT
    assert cron.next_after(MIDNIGHT - 1) == MIDNIGHT
    assert cron.next_after(MIDNIGHT) == MIDNIGHT + 24 * 60 * MINUTE


def test_a_window_is_open_from_its_date_for_its_duration() -> None:
    windows = Windows(Cron("0 0 * * *"), 10 * MINUTE)
    end = MIDNIGHT + 10 * MINUTE
    found = [windows.end_of(date) for date in (DATE, MIDNIGHT - 1, MIDNIGHT, end - 1, end)]
    assert found == [NO_DATE, NO_DATE, end, end, NO_DATE]
    assert windows.next_begin(DATE) == MIDNIGHT


def test_windows_may_overlap() -> None:
    windows = Windows(Cron("* * * * *"), 90_000)
    for second in range(0, 120, 7):
        date = MIDNIGHT + second * 1000
        assert date < windows.end_of(date) <= date + 90_000


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        (5, "not a text of up to 255 characters"),
        ("* " * 200, "not a text of up to 255 characters"),
        ("0 0 * *", "a cron expression has five fields: minute, hour, day, month, day of the week"),
        ("0 25 * * *", "Bad hour"),
    ],
)
def test_other_texts_are_refused(text: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        Cron(text)
