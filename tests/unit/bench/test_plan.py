"""Options of the bench, and refused options."""

import pytest

from broker.bench.plan import Address, Plan, PlanError, assign_queues

ADDRESS = Address("localhost", 5672, "guest", "guest", "/")


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("amqp://", ADDRESS),
        ("amqp://localhost", ADDRESS),
        ("amqp://localhost/", ADDRESS),
        ("amqp://localhost/%2F", ADDRESS),
        ("amqp://u%40x:p%3A:1@h:1/v%2Fw", Address("h", 1, "u@x", "p::1", "v/w")),
        ("amqp://[::1]:5673/v", Address("::1", 5673, "guest", "guest", "v")),
    ],
)
def test_urls(url: str, address: Address) -> None:
    assert Address.parse(url) == address


@pytest.mark.parametrize(
    "url", ["amqps://localhost", "localhost:5672", "amqp://localhost:port", "amqp://h:99999"]
)
def test_urls_that_are_refused(url: str) -> None:
    with pytest.raises(PlanError, match="--url"):
        Address.parse(url)


def test_an_address_does_not_show_its_password() -> None:
    assert "secret" not in str(Address("h", 1, "u", "secret", "/"))


@pytest.mark.parametrize(
    ("options", "named"),
    [
        ({"size": 15}, "--size"),
        ({"publishers": 0}, "--publishers"),
        ({"queues": 0}, "--queues"),
        ({"prefetch": 65536}, "--prefetch"),
        ({"prefetch": 10, "ack_every": 11}, "--ack-every"),
        ({"in_flight": 10, "ack_every": 11}, "--ack-every"),
        ({"count": 5, "seconds": 5.0}, "--duration"),
        ({"stream": True}, "--stream"),
        ({"stream": True, "prefetch": 5, "auto_ack": True}, "--stream"),
        ({"count": None}, "--duration"),
        ({"count": 0}, "--count"),
        ({"bindings": 2, "queues": 3}, "--bindings"),
        ({"bindings": 1, "keys": -1}, "--keys"),
        ({"keys": 5}, "--keys"),
    ],
)
def test_plans_that_cannot_work_are_refused_with_the_option(options: dict[str, object], named: str) -> None:
    wanted: dict[str, object] = {"address": ADDRESS, "count": 1} | options

    with pytest.raises(PlanError, match=named):
        Plan(**wanted)  # type: ignore[arg-type]


@pytest.mark.parametrize("members", range(1, 8))
@pytest.mark.parametrize("queues", range(1, 8))
def test_every_queue_has_somebody_and_everybody_a_queue(members: int, queues: int) -> None:
    shares = [assign_queues(member, members, queues) for member in range(members)]

    assert all(shares)
    assert {queue for share in shares for queue in share} == set(range(queues))
    assert sum(map(len, shares)) == max(members, queues)


def test_lanes_are_the_pairs_that_exchange_messages() -> None:
    plan = Plan(ADDRESS, publishers=2, queues=3, count=1)

    assert plan.lanes == [(0, 0), (0, 2), (1, 1)]
