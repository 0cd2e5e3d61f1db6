"""Permissions remember their answers, within bounds."""

import re

import pytest

from broker.auth import permissions
from broker.auth.permissions import Permission


def test_the_number_of_remembered_answers_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(permissions, "ANSWERS_MAX", 10)
    permission = Permission("^q", "", "")
    for number in range(100):
        assert permission.allows("configure", f"q{number}")
        assert not permission.allows("configure", f"x{number}")
        assert len(permission._answers) <= 10


def test_a_question_is_matched_once() -> None:
    class Counting:
        """A pattern that counts its searches."""

        searches = 0

        def search(self, text: str) -> re.Match[str] | None:
            self.searches += 1
            return re.search("q", text)

    permission = Permission("q", "", "")
    pattern = Counting()
    permission._patterns["configure"] = pattern  # type: ignore[assignment]
    assert all(permission.allows("configure", "q") for _ in range(5))
    assert pattern.searches == 1


def test_an_unknown_question_is_an_error() -> None:
    with pytest.raises(KeyError):
        Permission("", "", "").allows("delete", "q")
