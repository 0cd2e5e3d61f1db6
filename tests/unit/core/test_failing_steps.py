"""An exception in one step stops neither the other messages nor the requests behind it."""

from collections.abc import Callable
from typing import ParamSpec, TypeVar

import pytest

from broker.adapters.amqp10 import attach
from broker.core.queues.dead_letter_backlog import RETRY_MS, existing_backlog
from broker.core.queues.death import Death
from broker.core.queues.group import Group
from broker.core.queues.groups import Groups
from broker.core.queues.purge import Purge
from broker.core.queues.purge import purge as begin_purge
from broker.core.queues.queue import Queue
from broker.core.schedule import FAILURE_MS
from broker.flavour import FLAVOUR
from protocol.amqp10.performatives import Attach, Detach
from tests.support.adapters.connection10_without_socket import Client10
from tests.support.adapters.management_client import ManagementClient, request
from tests.support.adapters.resumed_links10 import (
    SENDS,
    bench_with_queues,
    performative_types,
    receiver_attach,
    sender_attach,
)
from tests.support.core.group_bench import GroupBench
from tests.support.core.policies import set_policy
from tests.support.core.purge import purge
from tests.support.core.timed_vhost import VhostBench, numbers

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
    bench = VhostBench()
    dead = bench.queue("dead")
    bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead", max_length=0)
    letters = bench.vhost.dead_letters
    monkeypatch.setattr(letters, "_send", failing_once(letters._send))
    monkeypatch.setattr(bench.vhost, "trouble", failing_once(bench.vhost.trouble))
    with pytest.raises(PlannedError):
        bench.publish()
    bench.publish(count=2)
    assert numbers(dead) == [2, 3]


def waiting_letters(bench: VhostBench) -> tuple[Queue, Queue]:
    """Two messages of a queue that wait for room, and the full queue."""
    dead = bench.queue("dead", max_length=1, overflow="reject-publish")
    bench.publish("dead")
    queue = bench.queue(
        dead_letter_exchange="",
        dead_letter_routing_key="dead",
        dead_letter_strategy="at-least-once",
        overflow="reject-publish",
        message_ttl=5,
    )
    bench.publish(count=2)
    bench.clock.advance(10)
    assert (queue.ready, queue.dead) == (0, 2)
    return queue, dead


def test_waiting_dead_letters_are_tried_again_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = VhostBench()
    queue, dead = waiting_letters(bench)
    try_again = failing_once(bench.vhost.try_again)
    monkeypatch.setattr(bench.vhost, "try_again", try_again)
    purge(dead)
    with pytest.raises(PlannedError):
        bench.clock.advance(RETRY_MS)
    assert (queue.dead, queue.dead_bytes) == (2, 2), "the message still waits"
    bench.clock.advance(2 * RETRY_MS)
    assert (queue.dead, numbers(dead)) == (1, [2])
    backlog = existing_backlog(queue)
    assert backlog is not None
    assert len(backlog) == 1


def test_entries_expire_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = VhostBench()
    queue = bench.queue(dead_letter_exchange="", dead_letter_routing_key="dead", message_ttl=5)
    dead = bench.queue("dead")
    bench.publish(count=3)

    def lose(death: Death) -> None:
        send(death)

    send = bench.vhost.dead_letter
    monkeypatch.setattr(bench.vhost, "dead_letter", failing_once(lose))
    with pytest.raises(PlannedError):
        bench.clock.advance(10)
    bench.clock.advance(int(FAILURE_MS))
    assert (queue.ready, numbers(dead)) == (0, [2, 3])


def test_a_purge_goes_on_after_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    bench = VhostBench()
    queue = bench.queue()
    bench.publish(count=5)
    client = bench.client(queue, 0)
    asked = begin_purge(queue, bench.clock.schedule, 2)
    monkeypatch.setattr(Purge, "_drop_slice", failing_once(Purge._drop_slice))
    with pytest.raises(PlannedError):
        bench.clock.advance(0)
    bench.clock.advance(int(FAILURE_MS))
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
    bench = VhostBench()
    bench.queue()
    reports: list[str] = []

    def fail() -> None:
        raise PlannedError

    set_policy(bench.vhost, "p", ".*", now=False, max_length=1)
    bench.vhost.policies.call_when_applied(fail)
    bench.vhost.policies.call_when_applied(lambda: reports.append("applied"))
    with pytest.raises(PlannedError):
        bench.clock.advance(0)
    bench.clock.advance(int(FAILURE_MS))
    assert reports == ["applied"]


def test_a_response_that_cannot_be_sent_does_not_stop_the_next_request(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = ManagementClient()
    monkeypatch.setattr(client.management, "_send", failing_once(client.responses.append))
    with pytest.raises(PlannedError):
        client.management.handle_request(request("GET", "/queues/none"))
    assert client.ask("GET", "/queues/none")[0] == 404


def test_a_connection_takes_frames_after_an_error_that_could_not_be_reported(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    client = Client10(bench_with_queues())
    connection = client.connection
    monkeypatch.setattr(connection.input, "_handle_frame", failing_once(connection.input._handle_frame))
    monkeypatch.setattr(connection, "internal_error", failing_once(connection.internal_error))
    with pytest.raises(PlannedError):
        client.send(sender_attach())
    client.send(receiver_attach({}))
    assert performative_types(client) == [Attach]


def test_a_connection_takes_frames_after_an_attach_that_has_failed_late(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    house = bench_with_queues()
    client = Client10(house)
    client.send(sender_attach())
    client.publish(0, durable=True)
    client.send(Detach(handle=SENDS, closed=False), sender_attach(b"0"))
    performative_types(client)
    assert client.connection.holds
    monkeypatch.setattr(attach, "awaits_log", failing_once(attach.awaits_log))
    with pytest.raises(PlannedError):
        house.store.complete()
    assert not client.connection.holds
