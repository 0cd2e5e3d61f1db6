"""An exception in one step stops neither the other messages nor the requests behind it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from broker.adapters.amqp10 import attach
from broker.core.queues.backlog import RETRY_MS, existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.group import Group
from broker.core.queues.groups import Groups
from broker.core.queues.purge import Purge
from broker.core.queues.purge import purge as begin_purge
from broker.core.queues.queue import Queue
from broker.core.schedule import FAILURE_MS
from broker.flavour import FLAVOUR
from protocol.amqp10.performatives import Attach, Detach
from tests.grouping import GroupBench
from tests.management10 import Desk, request
from tests.policies import put
from tests.purging import purge
from tests.returning10 import SENDS, kinds, premises, receives, sends
from tests.wired10 import Wired10
from tests.yard import Yard, numbers

pytestmark = pytest.mark.skipif(FLAVOUR == "compiled", reason="compiled methods cannot be replaced")

P = ParamSpec("P")
R = TypeVar("R")


class PlannedError(Exception):
    """The error that a test plants."""


def failing_once(function: Callable[P, R]) -> Callable[P, R]:
    """Return the function with an exception instead of its first call."""
    calls = 0

    def called(*args: P.args, **kwargs: P.kwargs) -> R:
        nonlocal calls
        calls += 1
        if calls == 1:
            raise PlannedError
        return function(*args, **kwargs)

    return called


def test_dead_letters_go_on_after_a_failure_that_could_not_be_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    yard = Yard()
    dead = yard.queue("dead")
    yard.queue(dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    letters = yard.vhost.dead_letters
    monkeypatch.setattr(letters, "_send", failing_once(letters._send))
    monkeypatch.setattr(yard.vhost, "trouble", failing_once(yard.vhost.trouble))
    with pytest.raises(PlannedError):
        yard.publish()
    yard.publish(count=2)
    assert numbers(dead) == [2, 3]


def waiting_letters(yard: Yard) -> tuple[Queue, Queue]:
    """Two messages of a queue that wait for room, and the full queue."""
    dead = yard.queue("dead", max_length=1, overflow="reject-publish")
    yard.publish("dead")
    queue = yard.queue(
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        message_ttl=5,
    )
    yard.publish(count=2)
    yard.clock.advance(10)
    assert (queue.ready, queue.dead) == (0, 2)
    return queue, dead


def test_waiting_dead_letters_are_tried_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    queue, dead = waiting_letters(yard)
    try_again = failing_once(yard.vhost.try_again)
    monkeypatch.setattr(yard.vhost, "try_again", try_again)
    purge(dead)
    with pytest.raises(PlannedError):
        yard.clock.advance(RETRY_MS)
    assert (queue.dead, queue.dead_bytes) == (2, 2), "the message still waits"
    yard.clock.advance(2 * RETRY_MS)
    assert (queue.dead, numbers(dead)) == (1, [2])
    backlog = existing_backlog(queue)
    assert backlog is not None
    assert len(backlog) == 1


def test_entries_expire_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    queue = yard.queue(dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=5)
    dead = yard.queue("dead")
    yard.publish(count=3)

    def lose(death: Death) -> None:
        send(death)

    send = yard.vhost.dead_letter
    monkeypatch.setattr(yard.vhost, "dead_letter", failing_once(lose))
    with pytest.raises(PlannedError):
        yard.clock.advance(10)
    yard.clock.advance(int(FAILURE_MS))
    assert (queue.ready, numbers(dead)) == (0, [2, 3])


def test_a_purge_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    yard = Yard()
    queue = yard.queue()
    yard.publish(count=5)
    client = yard.client(queue, 0)
    asked = begin_purge(queue, yard.clock.schedule, 2)
    monkeypatch.setattr(Purge, "_drop_slice", failing_once(Purge._drop_slice))
    with pytest.raises(PlannedError):
        yard.clock.advance(0)
    yard.clock.advance(int(FAILURE_MS))
    assert (asked.over, queue.ready, queue.manager.purges, client.consumer.blockers) == (True, 0, [], 0)


def test_consumers_of_groups_are_served_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = GroupBench()
    bench.groups.most = 2
    client = bench.client(5)
    bench.send(*"abcde" * 2)
    bench.run()
    other = bench.client(10)
    client.vanish()
    assert bench.groups.release is not None

    def rest(groups: Groups, freed: list[Group]) -> None:
        original(groups, freed)

    original = Groups.free_calm
    monkeypatch.setattr(Groups, "free_calm", failing_once(rest))
    with pytest.raises(PlannedError):
        bench.clock.advance(0)
    bench.clock.advance(int(FAILURE_MS))
    assert not bench.groups.pauses
    bench.run()
    assert other.numbers


def test_every_change_of_policies_is_reported_after_a_failure() -> None:
    yard = Yard()
    yard.queue()
    reports: list[str] = []

    def fail() -> None:
        raise PlannedError

    put(yard.vhost, "p", ".*", now=False, max_length=1)
    yard.vhost.policies.when_applied(fail)
    yard.vhost.policies.when_applied(lambda: reports.append("applied"))
    with pytest.raises(PlannedError):
        yard.clock.advance(0)
    yard.clock.advance(int(FAILURE_MS))
    assert reports == ["applied"]


def test_a_response_that_cannot_be_sent_does_not_stop_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    desk = Desk()
    monkeypatch.setattr(desk.management, "_say", failing_once(desk.said.append))
    with pytest.raises(PlannedError):
        desk.management.ask(request("GET", "/queues/none"))
    assert desk.ask("GET", "/queues/none")[0] == 404


def test_a_connection_takes_frames_after_an_error_that_could_not_be_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Wired10(premises())
    connection = client.connection
    monkeypatch.setattr(connection.hearing, "_take_frame", failing_once(connection.hearing._take_frame))
    monkeypatch.setattr(connection, "internal_error", failing_once(connection.internal_error))
    with pytest.raises(PlannedError):
        client.send(sends())
    client.send(receives({}))
    assert kinds(client) == [Attach]


def test_a_connection_takes_frames_after_an_attach_that_has_failed_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = premises()
    client = Wired10(house)
    client.send(sends())
    client.publish(0, durable=True)
    client.send(Detach(handle=SENDS, closed=False), sends(b"0"))
    kinds(client)
    assert client.connection.holds
    monkeypatch.setattr(attach, "is_ahead", failing_once(attach.is_ahead))
    with pytest.raises(PlannedError):
        house.store.complete()
    assert not client.connection.holds
