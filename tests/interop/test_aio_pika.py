"""aio-pika, unmodified, with its robust connections."""

import asyncio
from collections.abc import AsyncIterator

import aio_pika
import aiormq.exceptions
import pytest
from aio_pika.abc import AbstractChannel, AbstractConnection, AbstractIncomingMessage, AbstractQueue

from tests.support.daemon.daemon import PATIENCE_S, Address, DaemonStarter


@pytest.fixture
async def connection(address: Address) -> AsyncIterator[AbstractConnection]:
    """A plain connection."""
    connection = await aio_pika.connect(address.url())
    async with connection:
        yield connection


@pytest.fixture
async def channel(connection: AbstractConnection) -> AbstractChannel:
    """A channel with publisher confirms, aio-pika's default, that raises returned messages."""
    return await connection.channel(on_return_raises=True)


async def collect(queue: AbstractQueue, count: int) -> list[AbstractIncomingMessage]:
    """Consume `count` messages without acknowledging them, then cancel."""
    messages: list[AbstractIncomingMessage] = []
    async with asyncio.timeout(PATIENCE_S), queue.iterator() as arriving:
        async for message in arriving:
            messages.append(message)
            if len(messages) == count:
                break
    return messages


@pytest.mark.parametrize(
    ("kind", "key", "routed", "lost"),
    [
        (aio_pika.ExchangeType.DIRECT, "key", ["key"], ["other"]),
        (aio_pika.ExchangeType.FANOUT, "", ["", "any"], []),
        (aio_pika.ExchangeType.TOPIC, "a.*.#", ["a.b", "a.b.c"], ["a", "b.a"]),
    ],
)
async def test_exchanges(
    channel: AbstractChannel,
    name: str,
    kind: aio_pika.ExchangeType,
    key: str,
    routed: list[str],
    lost: list[str],
) -> None:
    exchange = await channel.declare_exchange(name, kind)
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(exchange, key)
    for routing_key in routed:
        await exchange.publish(aio_pika.Message(routing_key.encode()), routing_key)
    for routing_key in lost:
        with pytest.raises(aio_pika.exceptions.PublishError):
            await exchange.publish(aio_pika.Message(b""), routing_key)
    for routing_key in routed:
        message = await queue.get(no_ack=True)
        assert (message.exchange, message.routing_key, message.body) == (
            name,
            routing_key,
            routing_key.encode(),
        )
    assert await queue.get(fail=False) is None
    await queue.unbind(exchange, key)
    with pytest.raises(aio_pika.exceptions.PublishError):
        await exchange.publish(aio_pika.Message(b""), routed[0])
    await exchange.delete()


async def test_exchanges_bound_to_exchanges(channel: AbstractChannel, name: str) -> None:
    front = await channel.declare_exchange(name + ".front", aio_pika.ExchangeType.TOPIC, auto_delete=True)
    back = await channel.declare_exchange(name + ".back", aio_pika.ExchangeType.FANOUT, auto_delete=True)
    queue = await channel.declare_queue(exclusive=True)
    await queue.bind(back)
    await back.bind(front, "a.#")
    await front.publish(aio_pika.Message(b"through"), "a.b")
    assert (await queue.get(no_ack=True)).body == b"through"
    await back.unbind(front, "a.#")
    await queue.unbind(back)


async def test_properties_and_headers_come_back(channel: AbstractChannel) -> None:
    queue = await channel.declare_queue(exclusive=True)
    headers: dict[str, object] = {
        "text": "é",
        "number": 2**40,
        "yes": True,
        "list": [1, "two"],
        "table": {"x": 1},
    }
    message = aio_pika.Message(
        b"body",
        headers=headers,  # type: ignore[arg-type]
        content_type="text/plain",
        content_encoding="identity",
        delivery_mode=aio_pika.DeliveryMode.PERSISTENT,
        priority=3,
        correlation_id="c",
        reply_to=queue.name,
        expiration=60,
        message_id="m",
        timestamp=1_700_000_000,
        type="t",
        user_id="guest",
        app_id="a",
    )
    await channel.default_exchange.publish(message, queue.name)
    received = await queue.get(no_ack=True)
    assert received.body == b"body"
    assert received.headers == headers
    assert received.properties == message.properties


@pytest.mark.parametrize("size", [0, 1, 131064, 131065, 3_000_000])
async def test_bodies(channel: AbstractChannel, size: int) -> None:
    queue = await channel.declare_queue(exclusive=True)
    body = bytes(range(256)) * (size // 256) + b"x" * (size % 256)
    await channel.default_exchange.publish(aio_pika.Message(body), queue.name)
    assert (await queue.get(no_ack=True)).body == body


async def test_ack_nack_reject(channel: AbstractChannel) -> None:
    queue = await channel.declare_queue(exclusive=True)
    for number in range(5):
        await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name)
    messages = [await queue.get() for _ in range(5)]
    await messages[1].ack(multiple=True)
    await messages[2].nack(requeue=True)
    await messages[3].reject(requeue=False)
    await messages[4].reject(requeue=True)
    again = await collect(queue, 2)
    assert [(message.body, message.redelivered) for message in again] == [(b"2", True), (b"4", True)]
    for message in again:
        await message.ack()
    assert (await queue.purge()).message_count == 0


async def test_prefetch_and_cancel(connection: AbstractConnection) -> None:
    channel = await connection.channel()
    queue = await channel.declare_queue(exclusive=True)
    for number in range(6):
        await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name)
    await channel.set_qos(prefetch_count=2)
    arrived: asyncio.Queue[AbstractIncomingMessage] = asyncio.Queue()
    tag = await queue.consume(arrived.put)
    first, second = await arrived.get(), await arrived.get()
    other = await connection.channel()
    assert (await other.declare_queue(queue.name, passive=True)).declaration_result.message_count == 4
    assert arrived.empty()
    await first.ack()
    assert (await arrived.get()).body == b"2"
    await queue.cancel(tag)
    await second.ack()
    assert (await other.declare_queue(queue.name, passive=True)).declaration_result.consumer_count == 0


async def test_confirms_in_parallel(channel: AbstractChannel, name: str) -> None:
    queue = await channel.declare_queue(name, durable=True)
    message = aio_pika.Message(b"body", delivery_mode=aio_pika.DeliveryMode.PERSISTENT)
    await asyncio.gather(*(channel.default_exchange.publish(message, queue.name) for _ in range(500)))
    assert (await queue.delete(if_empty=False)).message_count == 500


async def test_a_mandatory_message_that_is_not_routed(channel: AbstractChannel, name: str) -> None:
    with pytest.raises(aio_pika.exceptions.PublishError) as refusal:
        await channel.default_exchange.publish(aio_pika.Message(b"lost"), name)
    assert refusal.value.message is not None
    assert getattr(refusal.value.message.delivery, "reply_code", None) == 312


async def test_many_channels(connection: AbstractConnection) -> None:
    channels = [await connection.channel() for _ in range(100)]
    queue = await channels[0].declare_queue(exclusive=True)
    for number, channel in enumerate(channels):
        await channel.default_exchange.publish(aio_pika.Message(b"%d" % number), queue.name)
    assert [(await queue.get(no_ack=True)).body for _ in channels] == [
        b"%d" % number for number in range(100)
    ]
    for channel in channels:
        await channel.close()
    async with connection.channel() as last:
        await last.declare_queue(exclusive=True)


async def test_errors_by_class(connection: AbstractConnection, address: Address, name: str) -> None:
    with pytest.raises(aiormq.exceptions.ChannelNotFoundEntity):
        await (await connection.channel()).declare_queue(name, passive=True)
    queue = await (await connection.channel()).declare_queue(name, auto_delete=True)
    with pytest.raises(aiormq.exceptions.ChannelPreconditionFailed):
        await (await connection.channel()).declare_queue(name, durable=True)
    await queue.delete()
    with pytest.raises(aiormq.exceptions.ProbableAuthenticationError):
        await aio_pika.connect(address.url(password="wrong"))


async def test_a_robust_connection_restores_queues_and_consumers_after_a_restart(
    start_daemon: DaemonStarter, name: str
) -> None:
    daemon = start_daemon()
    url = daemon.address.url(query="?reconnect_interval=1&fail_fast=0")
    arrived: asyncio.Queue[bytes] = asyncio.Queue()

    async def take(message: AbstractIncomingMessage) -> None:
        async with message.process():
            await arrived.put(message.body)

    async with asyncio.timeout(PATIENCE_S), await aio_pika.connect_robust(url) as connection:
        channel = await connection.channel()
        await channel.set_qos(prefetch_count=5)
        exchange = await channel.declare_exchange(
            name, aio_pika.ExchangeType.TOPIC
        )  # transient: declared again
        queue = await channel.declare_queue(name, exclusive=True)
        await queue.bind(exchange, "a.#")
        await queue.consume(take)
        back = asyncio.Event()
        connection.reconnect_callbacks.add(lambda *_: back.set())
        for ending in ("kill", "stop", ""):
            await exchange.publish(aio_pika.Message(ending.encode()), "a.b")
            assert await arrived.get() == ending.encode()
            if ending:
                back.clear()
                await asyncio.to_thread(getattr(daemon, ending))
                daemon = await asyncio.to_thread(start_daemon, port=daemon.address.port)
                await back.wait()
