"""Permissions: checked on every operation, refused in RabbitMQ's words, and effective at once."""

import pytest
from pamqp import base
from pamqp.commands import Basic, Exchange, Queue

from tests.support.auth.broker_with_users import (
    ALL,
    UserBench,
    access_refused_text,
    close_text,
    publish,
    refusal,
    user_bench,
)

NONE = "^none$"
PERMISSIONS = ("configure", "write", "read")


@pytest.fixture
def bench() -> UserBench:
    return user_bench()


NEEDS: list[tuple[base.Frame, dict[str, list[tuple[str, str]]]]] = [
    (Exchange.Declare(exchange="new", exchange_type="direct"), {"configure": [("exchange", "new")]}),
    (Exchange.Declare(exchange="x", exchange_type="direct"), {"configure": [("exchange", "x")]}),
    (
        Exchange.Declare(exchange="new", exchange_type="direct", arguments={"alternate-exchange": "y"}),
        {"configure": [("exchange", "new")], "read": [("exchange", "new")], "write": [("exchange", "y")]},
    ),
    (Exchange.Delete(exchange="x"), {"configure": [("exchange", "x")]}),
    (Exchange.Delete(exchange="absent"), {"configure": [("exchange", "absent")]}),
    (
        Exchange.Bind(destination="y", source="x", routing_key="k"),
        {"write": [("exchange", "y")], "read": [("exchange", "x")]},
    ),
    (
        Exchange.Unbind(destination="y", source="x", routing_key="k"),
        {"write": [("exchange", "y")], "read": [("exchange", "x")]},
    ),
    (Queue.Declare(queue="new"), {"configure": [("queue", "new")]}),
    (Queue.Declare(queue="q"), {"configure": [("queue", "q")]}),
    (
        Queue.Declare(queue="new", arguments={"x-dead-letter-exchange": "x"}),
        {"configure": [("queue", "new")], "read": [("queue", "new")], "write": [("exchange", "x")]},
    ),
    (
        Queue.Declare(queue="new", arguments={"x-dead-letter-exchange": ""}),
        {"configure": [("queue", "new")], "read": [("queue", "new")], "write": [("exchange", "amq.default")]},
    ),
    (
        Queue.Bind(queue="q", exchange="x", routing_key="k"),
        {"write": [("queue", "q")], "read": [("exchange", "x")]},
    ),
    (
        Queue.Unbind(queue="q", exchange="x", routing_key="k"),
        {"write": [("queue", "q")], "read": [("exchange", "x")]},
    ),
    (Queue.Purge(queue="q"), {"read": [("queue", "q")]}),
    (Queue.Delete(queue="q"), {"configure": [("queue", "q")]}),
    (Queue.Delete(queue="absent"), {"configure": [("queue", "absent")]}),
    (Basic.Get(queue="q"), {"read": [("queue", "q")]}),
    (Basic.Consume(queue="q", consumer_tag="c"), {"read": [("queue", "q")]}),
]
"""The permissions that each operation needs, as in RabbitMQ."""


@pytest.mark.parametrize(("command", "needs"), NEEDS, ids=[f"{c.name}-{i}" for i, (c, _) in enumerate(NEEDS)])
def test_each_method_needs_exactly_its_permissions(
    bench: UserBench, command: base.Frame, needs: dict[str, list[tuple[str, str]]]
) -> None:
    def exactly(name: str) -> str:
        return f"^{name.replace('.', '[.]')}$"

    enough = {
        what: "|".join(exactly(name) for _, name in needs.get(what, [])) or NONE for what in PERMISSIONS
    }
    bench.users.permit("ann", "/", "", "", "")
    ann = bench.enter("ann")
    for what, resources in needs.items():
        for kind, name in resources:
            bench.users.permit(
                "ann", "/", **(dict.fromkeys(PERMISSIONS, ALL) | {what: f"^(?!{exactly(name)[1:]})"})
            )
            assert refusal(ann, command) == access_refused_text(what, kind, name)
    bench.users.permit("ann", "/", **enough)
    assert refusal(ann, command) is None


@pytest.mark.parametrize(
    "command", [c for c, _ in NEEDS], ids=[f"{c.name}-{i}" for i, (c, _) in enumerate(NEEDS)]
)
def test_with_empty_permissions_nothing_is_allowed(bench: UserBench, command: base.Frame) -> None:
    bench.users.permit("ann", "/", "", "", "")
    before = (set(bench.broker.vhosts["/"].topology.queues), set(bench.broker.vhosts["/"].topology.exchanges))
    text = refusal(bench.enter("ann"), command)
    assert text is not None
    assert text.startswith("403 ACCESS_REFUSED - ")
    assert (
        set(bench.broker.vhosts["/"].topology.queues),
        set(bench.broker.vhosts["/"].topology.exchanges),
    ) == before


@pytest.mark.parametrize("given", PERMISSIONS)
@pytest.mark.parametrize(
    ("command", "kind", "name"),
    [
        (Queue.Declare(queue="q", passive=True), "queue", "q"),
        (Exchange.Declare(exchange="x", passive=True), "exchange", "x"),
    ],
)
def test_a_passive_declare_needs_any_permission(
    bench: UserBench, command: base.Frame, kind: str, name: str, given: str
) -> None:
    bench.users.permit("ann", "/", "", "", "")
    ann = bench.enter("ann")
    assert refusal(ann, command) == access_refused_text("configure", kind, name)
    bench.users.permit("ann", "/", **(dict.fromkeys(PERMISSIONS, "") | {given: f"^{name}$"}))
    assert refusal(ann, command) is None


def test_a_user_without_permissions_does_not_learn_which_objects_exist(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "", "", "")
    ann = bench.enter("ann")
    assert refusal(ann, Queue.Declare(queue="absent", passive=True)) == access_refused_text(
        "configure", "queue", "absent"
    )
    ann.connection.receive(publish("absent", "k"))
    assert close_text(ann) == access_refused_text("write", "exchange", "absent")


def test_redeclaring_needs_no_permission_on_the_dead_letter_exchange(bench: UserBench) -> None:
    boss = bench.enter("boss")
    declare = Queue.Declare(queue="d", arguments={"x-dead-letter-exchange": "x"})
    assert refusal(boss, declare) is None
    bench.users.permit("ann", "/", "^d$", "", "")
    assert refusal(bench.enter("ann"), declare) is None


def test_a_queue_that_the_broker_names_is_asked_for_by_that_name(bench: UserBench) -> None:
    bench.users.permit("ann", "/", "^mine", ALL, ALL)
    ann = bench.enter("ann")
    text = refusal(ann, Queue.Declare(queue="", exclusive=True))
    assert text is not None
    assert text.startswith("403 ACCESS_REFUSED - configure access to queue 'amq.gen-")
    bench.users.permit("ann", "/", r"^(mine|amq\.gen-)", ALL, ALL)
    assert refusal(ann, Queue.Declare(queue="", exclusive=True)) is None


@pytest.mark.parametrize(
    "command",
    [
        Exchange.Declare(exchange="", exchange_type="direct"),
        Exchange.Declare(exchange="", passive=True),
        Exchange.Delete(exchange=""),
    ],
)
def test_the_default_exchange_comes_before_permissions(bench: UserBench, command: base.Frame) -> None:
    bench.users.permit("ann", "/", "", "", "")
    assert refusal(bench.enter("ann"), command) == (
        "403 ACCESS_REFUSED - operation not permitted on the default exchange"
    )
