"""Permissions remember their answers, within bounds."""

import pytest

from broker.auth import permissions
from broker.auth.permissions import Permission, TopicPermission
from broker.auth.users import Users
from broker.core.ports import MessageStore
from tests.support.effort import ending


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

        def matches(self, name: str) -> bool:
            self.searches += 1
            return "q" in name

    permission = Permission("q", "", "")
    pattern = Counting()
    permission._patterns["configure"] = pattern  # type: ignore[assignment]
    assert all(permission.allows("configure", "q") for _ in range(5))
    assert pattern.searches == 1


def test_an_unknown_question_is_an_error() -> None:
    with pytest.raises(KeyError):
        Permission("", "", "").allows("delete", "q")


def test_no_routing_key_makes_a_topic_permission_long() -> None:
    topic = TopicPermission("^({username}|a+)+$", "")
    assert topic.objection == ""
    with ending():
        assert not topic.allows("write", "a" * 254 + "!", {"username": "a"})
    assert topic.allows("write", "a" * 255, {"username": "a"})


def test_values_that_make_an_expression_unusable_allow_nothing() -> None:
    topic = TopicPermission("{username}" * 800, "")
    assert topic.objection == ""
    assert topic.allows("write", "a" * 800, {"username": "a"})
    assert not topic.allows("write", "a" * 800, {"username": "a" * 255})


def test_an_unusable_expression_of_a_log_allows_nothing_and_is_reported() -> None:
    users = Users(MessageStore())
    user = {"name": "ann", "password_hash": "h", "tags": [], "loopback_only": False}
    users.apply({"kind": "user", **user})
    wrong = "((a?){500}){500}"
    where = {"name": "ann", "vhost": "/"}
    users.apply({"kind": "user.permission", **where, "configure": wrong, "write": "a", "read": ""})
    users.apply({"kind": "user.topic", **where, "exchange": "t", "write": wrong, "read": "a"})
    assert not users.is_allowed("ann", "/", "configure", "a")
    assert not users.is_allowed("ann", "/", "write", "a")
    assert not users.is_topic_allowed("ann", "/", "write", "t", "a")
    assert not users.is_topic_allowed("ann", "/", "read", "t", "a")
    assert [line.split(":")[0] for line in users.objections()] == [
        "a permission of user 'ann' in vhost '/'",
        "the topic permission of user 'ann' for exchange 't' in vhost '/'",
    ]
