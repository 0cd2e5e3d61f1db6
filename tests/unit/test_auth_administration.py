"""Users as an administrator sees them: replaced, listed, limited, and rid of a virtual host that is gone."""

import pytest

from broker.auth.passwords import NO_PASSWORD, Password
from broker.auth.user import Change
from broker.auth.users import Users
from broker.core.errors import NotFound, PreconditionFailed
from broker.core.ports import MessageStore
from tests.topology import definitions_of


@pytest.fixture
def users() -> Users:
    users = Users(MessageStore())
    users.add("ann", Password("h1"), ("administrator",))
    users.add("bob", Password("h2"))
    return users


def heard(users: Users) -> list[str]:
    """Names of users whose rights change from now on."""
    names: list[str] = []
    users.changed = names.append
    return names


def test_put_adds_and_replaces(users: Users) -> None:
    users.permit("ann", "/", "a", "b", "c")
    users.permit_topic("ann", "/", "t", "w", "r")
    users.set_limits("ann", {"max-connections": 1})
    users.known("ann").remembered = b"digest"
    new = users.put("ann", Password("h3"), ("monitoring",))
    assert new is users.known("ann")
    assert (new.password.hash, new.tags, new.remembered) == ("h3", ("monitoring",), b"")
    assert (list(new.permissions), list(new.topics), new.limits) == (
        ["/"],
        [("/", "t")],
        {"max-connections": 1},
    )
    assert users.put("eve", NO_PASSWORD).password == NO_PASSWORD


def test_put_without_a_password_keeps_the_one_there_is(users: Users) -> None:
    users.known("ann").remembered = b"digest"
    ann = users.put("ann", None, ("policymaker", "anything at all", "policymaker"))
    assert (ann.password.hash, ann.tags, ann.remembered) == (
        "h1",
        ("policymaker", "anything at all"),
        b"digest",
    )
    with pytest.raises(PreconditionFailed, match="user 'eve' is new: a password, or a hash, has to be given"):
        users.put("eve", None)


def test_guest_comes_from_loopback_only_unless_told_otherwise(users: Users) -> None:
    assert users.add("guest", Password("h")).loopback_only
    assert not users.put("guest", Password("h2"), loopback_only=False).loopback_only
    assert not users.put("guest", Password("h3")).loopback_only
    assert not users.known("ann").loopback_only
    assert users.put("ann", None, loopback_only=True).loopback_only


@pytest.mark.parametrize("tags", [[""], ["a,b"], ["a\nb"], ["x" * 256], [f"t{n}" for n in range(33)]])
def test_malformed_tags_change_nothing(users: Users, tags: list[str]) -> None:
    before = definitions_of(users)
    with pytest.raises(PreconditionFailed, match="user 'ann'"):
        users.put("ann", None, tags)
    with pytest.raises(PreconditionFailed, match="user 'eve'"):
        users.put("eve", Password("h"), tags)
    assert definitions_of(users) == before


def test_lists_by_user_and_by_virtual_host(users: Users) -> None:
    users.permit("bob", "/", "1", "2", "3")
    users.permit("ann", "/", "4", "5", "6")
    users.permit("ann", "other", "", "", "")
    users.permit_topic("ann", "/", "t", "w", "r")
    users.permit_topic("ann", "other", "t", "", "")
    here = [(name, p.configure, p.write, p.read) for name, p in users.permissions_in("/")]
    assert here == [("ann", "4", "5", "6"), ("bob", "1", "2", "3")]
    assert [(name, x, p.write, p.read) for name, x, p in users.topics_in("/")] == [("ann", "t", "w", "r")]
    assert (users.permissions_in("nope"), users.topics_in("nope")) == ([], [])
    assert list(users.known("ann").permissions) == ["/", "other"]


def test_a_virtual_host_that_is_gone(users: Users) -> None:
    for name in ("ann", "bob"):
        users.permit(name, "/", "", "", "")
        users.permit(name, "gone", "", "", "")
        users.permit_topic(name, "gone", "t", "", "")
    names = heard(users)
    users.forget_vhost("gone")
    assert (users.permissions_in("gone"), users.topics_in("gone")) == ([], [])
    assert len(users.permissions_in("/")) == 2
    assert set(names) == {"ann", "bob"}
    again = Users(MessageStore())
    for change in definitions_of(users):
        again.apply(change)
    assert definitions_of(again) == definitions_of(users)


def test_every_change_of_what_a_user_may_do_is_told(users: Users) -> None:
    names = heard(users)
    gone: list[str] = []
    users.deleted = gone.append
    users.permit("ann", "/", "", "", "")
    users.permit_topic("ann", "/", "t", "", "")
    users.forget_topic("ann", "/")
    users.forbid("ann", "/")
    users.put("ann", None, ())
    assert names == ["ann"] * 5
    users.forbid("ann", "/")
    users.forget_topic("ann", "/")
    assert names == ["ann"] * 5
    users.delete("ann")
    assert (names, gone) == (["ann"] * 5, ["ann"])


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max-queues": 1}, "'max-queues' is not known"),
        ({"max-channels": True}, "is True and not a whole number"),
    ],
)
def test_limits_that_make_no_sense(users: Users, limits: dict[str, int], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        users.set_limits("ann", limits)
    assert users.known("ann").limits == {}


def test_limits(users: Users) -> None:
    users.set_limits("ann", {"max-connections": 0, "max-channels": -1})
    assert users.limit("ann", "max-connections") == 0
    assert users.limit("ann", "max-channels") is None
    assert users.limit("bob", "max-connections") is None
    assert users.limit("nobody", "max-connections") is None
    with pytest.raises(NotFound):
        users.set_limits("nobody", {})


@pytest.mark.parametrize(
    ("write", "read", "what", "key", "expected"),
    [
        ("^a", "", "write", "a.b", True),
        ("^a", "", "write", "b", False),
        ("", "^a", "read", "a", True),
        ("", "", "write", "a", False),
        ("", "", "write", "", True),  # RabbitMQ takes the empty expression for ^$
        (r"^{username}\.{vhost}$", "", "write", "a.n./", True),
        (r"^{username}\.{vhost}$", "", "write", "axn./", False),  # a value is no expression
        ("^{client_id}$", "", "write", "{client_id}", True),  # AMQP clients have none
        (r"^\d{2}$", "", "write", "12", True),
    ],
)
def test_topic_permissions(users: Users, write: str, read: str, what: str, key: str, expected: bool) -> None:
    users.add("a.n", Password("h"))
    users.permit_topic("a.n", "/", "t", write, read)
    for _ in range(2):  # computed, then remembered
        assert users.topic_allowed("a.n", "/", what, "t", key) is expected
    assert users.topic_allowed("a.n", "/", what, "other", key)
    assert users.topic_allowed("a.n", "other", what, "t", key)
    assert users.topic_allowed("ann", "/", what, "t", key)
    assert not users.topic_allowed("nobody", "/", what, "t", key)


def test_what_stands_for_a_user_is_not_expanded_again(users: Users) -> None:
    users.add("{vhost}", Password("h"))
    users.permit_topic("{vhost}", "v", "t", "^{username}$", "")
    assert users.topic_allowed("{vhost}", "v", "write", "t", "{vhost}")
    assert not users.topic_allowed("{vhost}", "v", "write", "t", "v")


def test_a_malformed_topic_expression(users: Users) -> None:
    before = definitions_of(users)
    with pytest.raises(PreconditionFailed, match="is not a regular expression"):
        users.permit_topic("ann", "/", "t", "(", "")
    assert definitions_of(users) == before


def test_users_of_a_log_from_before_there_were_hashings() -> None:
    users = Users(MessageStore())
    old: Change = {"kind": "user", "name": "ann", "password_hash": "h", "tags": [], "loopback_only": False}
    users.apply(old)
    assert users.known("ann").password == Password("h", "argon2id", "")
