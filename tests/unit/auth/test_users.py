"""Users: changes, the durable form, rights, and the lists and limits that an administrator sees."""

import json
from collections.abc import Callable

import pytest

from broker.auth.passwords import NO_PASSWORD, Password
from broker.auth.user import Change
from broker.auth.users import Users
from broker.core.errors import NotFound, PreconditionFailed, StoreFailed
from broker.core.ports import MessageStore
from tests.support.core.topology import definitions_of


class Log(MessageStore):
    """A store that keeps the appended changes of users."""

    def __init__(self) -> None:
        super().__init__()
        self.changes: list[Change] = []

    def append_definition(self, change: Change) -> None:
        self.changes.append(json.loads(json.dumps(change)))


@pytest.fixture
def log() -> Log:
    return Log()


@pytest.fixture
def users(log: Log) -> Users:
    return Users(log)


def rebuilt(changes: list[Change]) -> Users:
    """Users made from `changes` alone; fails if that appends anything."""

    log = Log()
    again = Users(log)
    for change in changes:
        again.apply(json.loads(json.dumps(change)))
    assert log.changes == []
    return again


def described(users: Users) -> list[Change]:
    return sorted(definitions_of(users), key=json.dumps)


def test_every_history_is_rebuilt_from_its_changes_and_from_its_definitions(users: Users, log: Log) -> None:
    steps: list[Callable[[], object]] = [
        lambda: users.add("ann", Password("h1"), tags=("administrator",)),
        lambda: users.permit("ann", "/", ".*", "^a", ""),
        lambda: users.add("bob", Password("h2"), loopback_only=True),
        lambda: users.permit("bob", "other", "", "", ".*"),
        lambda: users.permit("ann", "other", "x", "y", "z"),
        lambda: users.put("ann", Password("h3")),
        lambda: users.put("ann", None, ("monitoring", "policymaker")),
        lambda: users.forbid("ann", "/"),
        lambda: users.permit("ann", "other", "x2", "y2", "z2"),
        lambda: users.permit_topic("ann", "other", "t", "^w", "^r"),
        lambda: users.permit_topic("ann", "other", "t2", "", ".*"),
        lambda: users.set_limits("ann", {"max-connections": 3, "max-channels": -1}),
        lambda: users.set_limits("bob", {"max-channels": 0}),
        lambda: users.put("ann", Password("h3", "rabbit_password_hashing_sha256", "v"), ("monitoring",)),
        lambda: users.forget_topic("ann", "other", "t2"),
        lambda: users.delete("bob"),
        lambda: users.add("bob", Password("h4")),
        lambda: users.put("bob", None, ("management",)),
        lambda: users.set_limits("ann", {}),
        lambda: users.set_limits("ann", {"max-channels": 9}),
    ]
    for step in steps:
        step()
        assert described(rebuilt(log.changes)) == described(users)
        assert described(rebuilt(definitions_of(users))) == described(users)
    ann, bob = users.get("ann"), users.get("bob")
    assert ann is not None
    assert bob is not None
    assert (ann.password.hash, ann.tags, list(ann.permissions)) == (
        "h3",
        ("monitoring",),
        ["other"],
    )
    assert (bob.password.hash, bob.loopback_only, bob.permissions) == ("h4", False, {})
    assert users.names() == ["ann", "bob"]


def test_applying_twice_is_as_applying_once(users: Users, log: Log) -> None:
    users.add("ann", Password("h1"))
    users.permit("ann", "/", ".*", ".*", ".*")
    users.add("bob", Password("h2"))
    users.delete("bob")
    assert described(rebuilt(log.changes + log.changes)) == described(users)
    assert described(rebuilt(definitions_of(users) + log.changes)) == described(users)


def test_changes_of_an_absent_user_are_ignored_at_recovery() -> None:
    absent: list[Change] = [
        {"kind": "user.delete", "name": "x"},
        {"kind": "user.permission", "name": "x", "vhost": "/", "configure": "", "write": "", "read": ""},
        {"kind": "user.permission.delete", "name": "x", "vhost": "/"},
    ]
    assert len(rebuilt(absent)) == 0


def test_an_unknown_change_is_not_swallowed(users: Users) -> None:
    with pytest.raises(ValueError, match=r"unknown change of users: user\.quota"):
        users.apply({"kind": "user.quota", "name": "x"})


def test_changing_a_missing_user_raises_not_found(users: Users, log: Log) -> None:
    acts: list[Callable[[], object]] = [
        lambda: users.delete("x"),
        lambda: users.permit("x", "/", "", "", ""),
        lambda: users.forbid("x", "/"),
    ]
    for act in acts:
        with pytest.raises(NotFound, match="no user 'x'"):
            act()
    assert log.changes == []


def test_a_name_is_taken_once(users: Users) -> None:
    users.add("ann", Password("h1"))
    with pytest.raises(PreconditionFailed, match="user 'ann' exists already"):
        users.add("ann", Password("h2"))


def test_changes_are_refused_after_the_log_has_stopped(users: Users, log: Log) -> None:
    users.add("ann", Password("h"))
    users.permit("ann", "/", "", "", "")
    before, log.failure = described(users), "disk full"
    acts: list[Callable[[], object]] = [
        lambda: users.add("bob", Password("h")),
        lambda: users.put("ann", Password("h2")),
        lambda: users.put("ann", None, ("x",)),
        lambda: users.permit("ann", "other", "", "", ""),
        lambda: users.forbid("ann", "/"),
        lambda: users.delete("ann"),
    ]
    for act in acts:
        with pytest.raises(StoreFailed, match="the log has stopped: disk full"):
            act()
    assert described(users) == before
    assert len(log.changes) == 2


@pytest.mark.parametrize("name", ["", "a\nb", "x" * 256, "ä" * 128, "\udc80"])
def test_a_malformed_name(users: Users, log: Log, name: str) -> None:
    with pytest.raises(PreconditionFailed, match="1 to 255 bytes"):
        users.add(name, Password("h"))
    assert log.changes == []


def test_the_longest_name(users: Users) -> None:
    assert users.add("ä" * 127 + "x", Password("h")).tags == ()


def test_a_malformed_expression_changes_nothing(users: Users, log: Log) -> None:
    users.add("ann", Password("h"))
    users.permit("ann", "/", "a", "a", "a")
    before = list(log.changes)
    with pytest.raises(PreconditionFailed, match=r"'\(' is not a regular expression"):
        users.permit("ann", "/", "a", "(", "a")
    assert log.changes == before
    assert users.is_allowed("ann", "/", "write", "a")


def test_a_permission_that_was_never_set_is_not_cleared_in_the_log(users: Users, log: Log) -> None:
    users.add("ann", Password("h"))
    users.forbid("ann", "/")
    assert [change["kind"] for change in log.changes] == ["user"]


def test_access_to_virtual_hosts(users: Users) -> None:
    users.add("ann", Password("h"))
    assert not users.may_access("ann", "/")
    users.permit("ann", "/", "", "", "")
    assert users.may_access("ann", "/")
    assert not users.may_access("ann", "other")
    assert not users.may_access("bob", "/")
    users.forbid("ann", "/")
    assert not users.may_access("ann", "/")


@pytest.mark.parametrize(
    ("expression", "name", "expected"),
    [
        (".*", "anything", True),
        ("", "anything", False),
        ("", "", False),
        ("^tasks", "tasks.1", True),
        ("^tasks$", "tasks.1", False),
        ("asks", "tasks.1", True),  # unanchored, as RabbitMQ matches
        (r"^amq\.default$", "", True),
        (".*", "", True),
    ],
)
def test_permissions_are_expressions_over_names(
    users: Users, expression: str, name: str, expected: bool
) -> None:
    users.add("ann", Password("h"))
    for what in ("configure", "write", "read"):
        users.permit("ann", "/", **({"configure": "", "write": "", "read": ""} | {what: expression}))
        for asked in ("configure", "write", "read"):
            for _ in range(2):  # computed, then remembered
                assert users.is_allowed("ann", "/", asked, name) == (expected and asked == what)
        assert not users.is_allowed("ann", "other", what, name)
        assert not users.is_allowed("bob", "/", what, name)


def test_remembered_answers_follow_a_change(users: Users) -> None:
    users.add("ann", Password("h"))
    users.permit("ann", "/", "a", "", "")
    assert users.is_allowed("ann", "/", "configure", "a")
    users.permit("ann", "/", "b", "", "")
    assert not users.is_allowed("ann", "/", "configure", "a")
    users.put("ann", Password("h2"))
    assert users.is_allowed("ann", "/", "configure", "b")


def test_the_first_user(users: Users) -> None:
    assert users.add_first("boss", Password("h"), "/")
    boss = users.get("boss")
    assert boss is not None
    assert (boss.tags, boss.loopback_only) == (("administrator",), False)
    assert all(users.is_allowed("boss", "/", what, "q") for what in ("configure", "write", "read"))
    assert not users.may_access("boss", "other")
    assert not users.add_first("guest", Password("h"), "/")
    assert users.names() == ["boss"]


def test_guest_as_first_user_comes_from_loopback_only_for_good(users: Users, log: Log) -> None:
    users.add_first("guest", Password("h"), "/")
    users.put("guest", Password("h2"))
    for those in (users, rebuilt(log.changes), rebuilt(definitions_of(users))):
        guest = those.get("guest")
        assert guest is not None
        assert guest.loopback_only


@pytest.fixture
def ann_and_bob() -> Users:
    users = Users(MessageStore())
    users.add("ann", Password("h1"), ("administrator",))
    users.add("bob", Password("h2"))
    return users


def heard(users: Users) -> list[str]:
    """Names of users whose rights change from now on."""
    names: list[str] = []
    users.on_rights_changed = names.append
    return names


def test_put_adds_and_replaces(ann_and_bob: Users) -> None:
    ann_and_bob.permit("ann", "/", "a", "b", "c")
    ann_and_bob.permit_topic("ann", "/", "t", "w", "r")
    ann_and_bob.set_limits("ann", {"max-connections": 1})
    ann_and_bob.require_user("ann").remembered = b"digest"
    new = ann_and_bob.put("ann", Password("h3"), ("monitoring",))
    assert new is ann_and_bob.require_user("ann")
    assert (new.password.hash, new.tags, new.remembered) == ("h3", ("monitoring",), b"")
    assert (list(new.permissions), list(new.topics), new.limits) == (
        ["/"],
        [("/", "t")],
        {"max-connections": 1},
    )
    assert ann_and_bob.put("eve", NO_PASSWORD).password == NO_PASSWORD


def test_put_without_a_password_keeps_the_one_there_is(ann_and_bob: Users) -> None:
    ann_and_bob.require_user("ann").remembered = b"digest"
    ann = ann_and_bob.put("ann", None, ("policymaker", "anything at all", "policymaker"))
    assert (ann.password.hash, ann.tags, ann.remembered) == (
        "h1",
        ("policymaker", "anything at all"),
        b"digest",
    )
    with pytest.raises(
        PreconditionFailed, match="user 'eve' is new, and needs a password or a password hash"
    ):
        ann_and_bob.put("eve", None)


def test_guest_logs_in_from_loopback_only_by_default(ann_and_bob: Users) -> None:
    assert ann_and_bob.add("guest", Password("h")).loopback_only
    assert not ann_and_bob.put("guest", Password("h2"), loopback_only=False).loopback_only
    assert not ann_and_bob.put("guest", Password("h3")).loopback_only
    assert not ann_and_bob.require_user("ann").loopback_only
    assert ann_and_bob.put("ann", None, loopback_only=True).loopback_only


@pytest.mark.parametrize("tags", [[""], ["a,b"], ["a\nb"], ["x" * 256], [f"t{n}" for n in range(33)]])
def test_malformed_tags_change_nothing(ann_and_bob: Users, tags: list[str]) -> None:
    before = definitions_of(ann_and_bob)
    with pytest.raises(PreconditionFailed, match="user 'ann'"):
        ann_and_bob.put("ann", None, tags)
    with pytest.raises(PreconditionFailed, match="user 'eve'"):
        ann_and_bob.put("eve", Password("h"), tags)
    assert definitions_of(ann_and_bob) == before


def test_lists_by_user_and_by_virtual_host(ann_and_bob: Users) -> None:
    ann_and_bob.permit("bob", "/", "1", "2", "3")
    ann_and_bob.permit("ann", "/", "4", "5", "6")
    ann_and_bob.permit("ann", "other", "", "", "")
    ann_and_bob.permit_topic("ann", "/", "t", "w", "r")
    ann_and_bob.permit_topic("ann", "other", "t", "", "")
    here = [(name, p.configure, p.write, p.read) for name, p in ann_and_bob.permissions_in("/")]
    assert here == [("ann", "4", "5", "6"), ("bob", "1", "2", "3")]
    assert [(name, x, p.write, p.read) for name, x, p in ann_and_bob.topics_in("/")] == [
        ("ann", "t", "w", "r")
    ]
    assert (ann_and_bob.permissions_in("nope"), ann_and_bob.topics_in("nope")) == ([], [])
    assert list(ann_and_bob.require_user("ann").permissions) == ["/", "other"]


def test_permissions_in_a_deleted_virtual_host_are_dropped(ann_and_bob: Users) -> None:
    for name in ("ann", "bob"):
        ann_and_bob.permit(name, "/", "", "", "")
        ann_and_bob.permit(name, "gone", "", "", "")
        ann_and_bob.permit_topic(name, "gone", "t", "", "")
    names = heard(ann_and_bob)
    ann_and_bob.forget_vhost("gone")
    assert (ann_and_bob.permissions_in("gone"), ann_and_bob.topics_in("gone")) == ([], [])
    assert len(ann_and_bob.permissions_in("/")) == 2
    assert set(names) == {"ann", "bob"}
    again = Users(MessageStore())
    for change in definitions_of(ann_and_bob):
        again.apply(change)
    assert definitions_of(again) == definitions_of(ann_and_bob)


def test_each_permission_change_notifies_of_its_user(ann_and_bob: Users) -> None:
    names = heard(ann_and_bob)
    gone: list[str] = []
    ann_and_bob.on_deleted = gone.append
    ann_and_bob.permit("ann", "/", "", "", "")
    ann_and_bob.permit_topic("ann", "/", "t", "", "")
    ann_and_bob.forget_topic("ann", "/")
    ann_and_bob.forbid("ann", "/")
    ann_and_bob.put("ann", None, ())
    assert names == ["ann"] * 5
    ann_and_bob.forbid("ann", "/")
    ann_and_bob.forget_topic("ann", "/")
    assert names == ["ann"] * 5
    ann_and_bob.delete("ann")
    assert (names, gone) == (["ann"] * 5, ["ann"])


@pytest.mark.parametrize(
    ("limits", "why"),
    [
        ({"max-queues": 1}, "'max-queues' is not known"),
        ({"max-channels": True}, "is True and not a whole number"),
    ],
)
def test_invalid_limits_are_refused(ann_and_bob: Users, limits: dict[str, int], why: str) -> None:
    with pytest.raises(PreconditionFailed, match=why):
        ann_and_bob.set_limits("ann", limits)
    assert ann_and_bob.require_user("ann").limits == {}


def test_limits(ann_and_bob: Users) -> None:
    ann_and_bob.set_limits("ann", {"max-connections": 0, "max-channels": -1})
    assert ann_and_bob.limit("ann", "max-connections") == 0
    assert ann_and_bob.limit("ann", "max-channels") is None
    assert ann_and_bob.limit("bob", "max-connections") is None
    assert ann_and_bob.limit("nobody", "max-connections") is None
    with pytest.raises(NotFound):
        ann_and_bob.set_limits("nobody", {})


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
def test_topic_permissions(
    ann_and_bob: Users, write: str, read: str, what: str, key: str, expected: bool
) -> None:
    ann_and_bob.add("a.n", Password("h"))
    ann_and_bob.permit_topic("a.n", "/", "t", write, read)
    for _ in range(2):  # computed, then remembered
        assert ann_and_bob.is_topic_allowed("a.n", "/", what, "t", key) is expected
    assert ann_and_bob.is_topic_allowed("a.n", "/", what, "other", key)
    assert ann_and_bob.is_topic_allowed("a.n", "other", what, "t", key)
    assert ann_and_bob.is_topic_allowed("ann", "/", what, "t", key)
    assert not ann_and_bob.is_topic_allowed("nobody", "/", what, "t", key)


def test_an_expanded_user_name_is_not_expanded_again(ann_and_bob: Users) -> None:
    ann_and_bob.add("{vhost}", Password("h"))
    ann_and_bob.permit_topic("{vhost}", "v", "t", "^{username}$", "")
    assert ann_and_bob.is_topic_allowed("{vhost}", "v", "write", "t", "{vhost}")
    assert not ann_and_bob.is_topic_allowed("{vhost}", "v", "write", "t", "v")


def test_a_malformed_topic_expression(ann_and_bob: Users) -> None:
    before = definitions_of(ann_and_bob)
    with pytest.raises(PreconditionFailed, match="is not a regular expression"):
        ann_and_bob.permit_topic("ann", "/", "t", "(", "")
    assert definitions_of(ann_and_bob) == before


def test_users_of_a_log_from_before_there_were_hashings() -> None:
    users = Users(MessageStore())
    old: Change = {"kind": "user", "name": "ann", "password_hash": "h", "tags": [], "loopback_only": False}
    users.apply(old)
    assert users.require_user("ann").password == Password("h", "argon2id", "")
