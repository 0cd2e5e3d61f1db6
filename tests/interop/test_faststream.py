"""FastStream over aio-pika, unmodified."""

import asyncio
import uuid

from faststream.rabbit import Channel, ExchangeType, RabbitBroker, RabbitExchange, RabbitMessage, RabbitQueue

from tests.support.daemon.daemon import PATIENCE_S, Address


async def test_publishing_and_subscribing(address: Address, name: str) -> None:
    # the client handles every message in a task of its own: only one at a time keeps their order
    broker = RabbitBroker(address.url(), logger=None, default_channel=Channel(prefetch_count=1))
    exchange = RabbitExchange(name, type=ExchangeType.TOPIC, auto_delete=True)
    queue = RabbitQueue(name, auto_delete=True, routing_key="logs.#")
    arrived: asyncio.Queue[tuple[dict[str, int], str]] = asyncio.Queue()

    @broker.subscriber(queue, exchange)
    async def take(body: dict[str, int], message: RabbitMessage) -> None:
        await arrived.put((body, str(message.headers["kind"])))

    async with asyncio.timeout(PATIENCE_S), broker:
        await broker.start()
        for number in range(20):
            await broker.publish({"number": number}, f"logs.{number}", exchange, headers={"kind": "test"})
        assert [await arrived.get() for _ in range(20)] == [({"number": n}, "test") for n in range(20)]


async def test_answers_are_published_where_the_handler_says(address: Address, name: str) -> None:
    broker = RabbitBroker(address.url(), logger=None)
    arrived: asyncio.Queue[int] = asyncio.Queue()

    @broker.subscriber(RabbitQueue(name + ".in", auto_delete=True))
    @broker.publisher(name + ".out")
    async def double(number: int) -> int:
        return 2 * number

    @broker.subscriber(RabbitQueue(name + ".out", auto_delete=True))
    async def take(number: int) -> None:
        await arrived.put(number)

    async with asyncio.timeout(PATIENCE_S), broker:
        await broker.start()
        await broker.publish(21, name + ".in")
        assert await arrived.get() == 42


async def test_a_failed_handler_gets_its_message_again(address: Address, name: str) -> None:
    broker = RabbitBroker(address.url(), logger=None)
    seen: asyncio.Queue[bool] = asyncio.Queue()

    @broker.subscriber(RabbitQueue(name, auto_delete=True))
    async def take(body: str, message: RabbitMessage) -> None:
        await seen.put(bool(message.raw_message.redelivered))
        if not message.raw_message.redelivered:
            await message.nack()

    async with asyncio.timeout(PATIENCE_S), broker:
        await broker.start()
        await broker.publish("again", name)
        assert [await seen.get(), await seen.get()] == [False, True]


async def test_requests_are_answered_through_direct_reply_to(address: Address, name: str) -> None:
    broker = RabbitBroker(address.url(), logger=None)

    @broker.subscriber(RabbitQueue(name, auto_delete=True))
    async def answer(word: str) -> str:
        return word.upper()

    async with asyncio.timeout(PATIENCE_S), broker:
        await broker.start()
        words = [uuid.uuid4().hex for _ in range(10)]
        answers = [await broker.request(word, name, timeout=PATIENCE_S) for word in words]
        assert [await reply.decode() for reply in answers] == [word.upper() for word in words]
