"""Retention of streams by bytes and by age: whole files, and never the file that is written to."""

import pytest
from pamqp.commands import Queue
from pamqp.common import FieldTable, FieldValue

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, PeerChannel
from tests.support.amqp091.streams import Publisher, declare_stream, offset_of, read
from tests.support.daemon.daemon import DaemonStarter
from tests.support.daemon.endings import Ending, both_endings

MIB = 1024 * 1024
BODY = b"x" * 100_000
LIMITS: FieldTable = {"x-max-length-bytes": 3 * MIB, "x-stream-max-segment-size-bytes": MIB}


def fill(publisher: Publisher, stream: str) -> None:
    """10 MB, in many batches."""
    for _ in range(20):
        publisher.publish(stream, *[BODY] * 5)


def first_kept(api: Api, stream: str, vhost: str = "/") -> int:
    """Return the oldest offset of a stream with a hundred messages, some of which must be removed."""
    (partition,) = api.get("streams", vhost, stream)["partitions"]
    first = partition["first"]
    assert isinstance(first, int)
    assert partition["next"] == 100
    assert 0 < first < 75
    assert 3 * MIB <= partition["bytes"] < 5 * MIB
    return first


@both_endings
def test_old_messages_go_and_stay_away(start_daemon: DaemonStarter, connect: Connector, end: Ending) -> None:
    daemon = start_daemon()
    publisher = Publisher(lambda: connect(daemon.address))
    stream = declare_stream(publisher.channel, "s", LIMITS)
    fill(publisher, stream)
    api = Api(daemon.admin)
    first = first_kept(api, stream)
    api.close()
    end(daemon, publisher.channel.peer)

    daemon = start_daemon()
    api = Api(daemon.admin)
    assert first_kept(api, stream) >= first
    api.close()
    peer = connect(daemon.address)
    offsets: list[FieldValue] = ["first", 0]
    for number, offset in enumerate(offsets, 1):
        channel = peer.channel(number)
        read(channel, stream, offset, prefetch=1)
        assert offset_of(channel.delivery()) >= first


def test_a_reader_behind_the_retention_resumes_at_the_first_kept_message(
    channel: PeerChannel, connect: Connector, api: Api, name: str
) -> None:
    publisher = Publisher(connect)
    stream = declare_stream(publisher.channel, name, LIMITS)
    publisher.publish(stream, *[BODY] * 5)
    read(channel, stream, "first", prefetch=1)
    message = channel.delivery()
    assert offset_of(message) == 0
    for _ in range(19):
        publisher.publish(stream, *[BODY] * 5)
    first = first_kept(api, stream)
    read_so_far = [0]
    while read_so_far[-1] < 99:
        channel.ack(message.tag)
        message = channel.delivery()
        read_so_far.append(offset_of(message))
    assert read_so_far == sorted(set(read_so_far))
    assert read_so_far[-(100 - first) :] == list(range(first, 100))
    publisher.channel.call(Queue.Delete(queue=stream), Queue.DeleteOk)


@pytest.mark.parametrize("limited", ["policy", "argument"])
def test_limits_come_and_go_with_policies_and_alterations(
    connect: Connector, api: Api, name: str, limited: str
) -> None:
    publisher = Publisher(connect)
    stream = declare_stream(publisher.channel, name, {"x-stream-max-segment-size-bytes": MIB})
    fill(publisher, stream)
    (partition,) = api.get("streams", "/", stream)["partitions"]
    assert (partition["first"], partition["next"]) == (0, 100)
    if limited == "policy":
        definition = {"max-length-bytes": 3 * MIB}
        body = {"pattern": "^" + name, "definition": definition, "apply-to": "streams"}
        api.put("policies", "/", name, body=body)
    else:
        changed = {"arguments": {"x-max-length-bytes": 3 * MIB}}
        answer = api.ask("PATCH", "queues", "/", stream, body=changed)
        assert answer.status_code == 204, answer.text
    first_kept(api, stream)
    if limited == "policy":
        api.delete("policies", "/", name)
    publisher.channel.call(Queue.Delete(queue=stream), Queue.DeleteOk)
