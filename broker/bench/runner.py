"""A run: declare queues, connect, publish, wait for the last messages, check, delete."""

from __future__ import annotations

import asyncio
import secrets
from collections.abc import Callable, Iterable
from contextlib import suppress
from time import monotonic_ns, process_time
from typing import Final, NamedTuple

from pamqp import commands
from pamqp.common import FieldTable

from broker.bench.amqp091 import Client091, Consumer091, Sender091
from broker.bench.amqp10 import Consumer10, Sender10
from broker.bench.connection import BenchError
from broker.bench.cpu import cpu_seconds
from broker.bench.messages import make_patterns
from broker.bench.plan import AMQP_091, AMQP_10, Plan, assign_queues
from broker.bench.publisher import Publisher
from broker.bench.result import Result
from broker.bench.roles import Consumer, Peer, Sender
from broker.bench.traffic import Traffic

PATIENCE_S = 10.0  # without progress for so long, missing messages count as lost
SETTLING_S = 2  # so long may the counts of queues lag behind the broker's answers
PROGRESS_S = 0.5

Progress = Callable[[Traffic, float], None]
"""Called twice a second with the counts and the seconds since the start."""


class Speaker(NamedTuple):
    """The sender and the consumer of a protocol, constructed from plan, traffic, and lanes or queues."""

    sender: Callable[[Plan, Traffic, list[tuple[int, str]], str], Sender]
    consumer: Callable[[Plan, Traffic, list[str]], Consumer]


SPEAKERS: Final = {
    AMQP_091: Speaker(Sender091, Consumer091),
    AMQP_10: Speaker(Sender10, Consumer10),
}


async def declare_bindings(control: Client091, exchange: str, queues: list[str], plan: Plan) -> None:
    """Declare the exchange and its bindings. Raises BenchError.

    Each queue has one binding whose pattern matches the keys published for it. All other bindings belong to
    the first queue and match no published key. Their patterns have words, `*` and `#` in many places.
    """
    await control.call(commands.Exchange.Declare(0, exchange, "topic", False, False, False, False, False, {}))
    for queue, pattern in make_patterns(queues, plan.bindings):
        await control.call(commands.Queue.Bind(0, queue, exchange, pattern, False, {}))


async def run(plan: Plan, broker_pid: int | None, progress: Progress) -> Result:
    """Run `plan`. Raises BenchError if the broker refuses a request or closes a connection."""
    return await Run(plan, broker_pid).run(progress)


class Run:
    """The connections of one run and its figures."""

    def __init__(self, plan: Plan, broker_pid: int | None) -> None:
        self.plan = plan
        self.broker_pid = broker_pid
        self.flow = Traffic(plan)
        name = secrets.token_hex(4)  # queues of its own, so that runs do not meet each other's messages
        self.queues = [f"amqpd-bench-{name}-{number:05d}" for number in range(plan.queues)]
        self.control = Client091()  # queues are always declared and counted over AMQP 0-9-1
        self.exchange = f"amqpd-bench-{name}" if plan.bindings else ""
        speaker = SPEAKERS[plan.protocol]
        self.publishers: list[Publisher] = []
        for lanes in self._lanes():
            sender: Sender = speaker.sender(plan, self.flow, lanes, self.exchange)
            self.publishers.append(Publisher(plan, self.flow, [lane for lane, _ in lanes], sender))
        self.consumers: list[Consumer] = [
            speaker.consumer(
                plan, self.flow, [self.queues[q] for q in assign_queues(number, plan.consumers, plan.queues)]
            )
            for number in range(plan.consumers)
        ]

    async def run(self, progress: Progress) -> Result:
        """Run the plan; see the function `run`."""
        await self.control.open(self.plan.address)
        try:
            for queue in self.queues:
                durable = self.plan.durable or self.plan.stream
                arguments: FieldTable = {"x-queue-type": "stream"} if self.plan.stream else {}
                declare = commands.Queue.Declare(0, queue, False, durable, False, False, False, arguments)
                await self.control.call(declare)
            if self.exchange:
                await declare_bindings(self.control, self.exchange, self.queues, self.plan)
            for client in self._clients():
                await client.open(self.plan.address)
            for consumer in self.consumers:
                await consumer.start()
            for publisher in self.publishers:
                await publisher.sender.prepare()
            return await self._measure(progress)
        finally:
            await self._clean_up()

    async def _measure(self, progress: Progress) -> Result:
        flow, plan = self.flow, self.plan
        own_cpu, broker_cpu = process_time(), self._broker_cpu()
        began = monotonic_ns()
        for publisher in self.publishers:
            publisher.start()
        if plan.seconds is not None:
            asyncio.get_running_loop().call_later(plan.seconds, flow.stop)
        counts, moved = flow.counts, began
        while not flow.settled.is_set():
            with suppress(TimeoutError):
                async with asyncio.timeout(PROGRESS_S):
                    await flow.settled.wait()
            now = monotonic_ns()
            progress(flow, (now - began) / 1e9)
            held_up = flow.publishing and any(publisher.held_up for publisher in self.publishers)
            if flow.counts != counts or held_up:
                counts, moved = flow.counts, now
            elif now - moved > PATIENCE_S * 1e9:
                flow.stop()
                await self._count_left()  # raises if the broker does not answer
                break
        self._raise_failure()
        ended = max(flow.last_change, began + 1) if self._awaits_something() else monotonic_ns()
        for consumer in self.consumers:
            consumer.finish()
        for client in self._clients():
            await client.close()
        broker_cpu_now = self._broker_cpu()
        return Result(
            plan=plan,
            seconds=(ended - began) / 1e9,
            published=flow.published,
            confirmed=flow.confirmed,
            received=flow.received,
            receipt=flow.receipt,
            confirmation=flow.confirmation,
            own_cpu=process_time() - own_cpu,
            broker_cpu=None if broker_cpu is None or broker_cpu_now is None else broker_cpu_now - broker_cpu,
            checks=self._checks(
                await self._left(0 if plan.consumers and not plan.stream else flow.published)
            ),
        )

    def _checks(self, left: int) -> dict[str, int]:
        """Return the counts that must be 0. `left`: messages in the queues at the end; streams keep all."""
        flow, plan = self.flow, self.plan
        confirms = [publisher.confirms for publisher in self.publishers]
        checks = {"unconfirmed": 0, "nacked": 0, "wrong_confirms": 0}
        if plan.confirm:
            checks["unconfirmed"] = sum(one.outstanding for one in confirms)
            checks["nacked"] = sum(one.nacked for one in confirms)
            checks["wrong_confirms"] = sum(one.wrong for one in confirms)
        if not plan.consumers:
            return checks | {
                "lost": max(flow.published - left, 0),
                "duplicates": max(left - flow.published, 0),
            }
        return checks | {
            "lost": flow.checker.lost(flow.sequences),
            "duplicates": flow.checker.duplicates,
            "reordered": flow.checker.reordered,
            "damaged": flow.checker.foreign + sum(one.receipts.damaged for one in self.consumers),
            "misnumbered": sum(one.receipts.misnumbered for one in self.consumers),
            "left_in_queues": left if not plan.stream else abs(flow.published - left),
        }

    def _awaits_something(self) -> bool:
        return bool(self.consumers) or self.plan.confirm > 0

    def _raise_failure(self) -> None:
        peers: list[Peer] = [self.control, *self._clients()]
        for client in peers:
            if client.failure is not None:
                raise client.failure

    def _broker_cpu(self) -> float | None:
        if self.broker_pid is None:
            return None
        try:
            return cpu_seconds(self.broker_pid)
        except ProcessLookupError as error:
            raise BenchError(f"--broker-pid: {error}") from error

    async def _left(self, expected: int) -> int:
        """Return the messages in the queues; counts that lag behind get SETTLING_S to catch up."""
        left = await self._count_left()
        give_up = monotonic_ns() + SETTLING_S * 10**9
        while left != expected and monotonic_ns() < give_up:
            await asyncio.sleep(0.05)
            left = await self._count_left()
        return left

    async def _count_left(self) -> int:
        left = 0
        for queue in self.queues:
            ok = await self.control.call(
                commands.Queue.Declare(0, queue, True, False, False, False, False, {})
            )
            assert isinstance(ok, commands.Queue.DeclareOk)
            left += ok.message_count or 0
        return left

    async def _clean_up(self) -> None:
        """Delete the queues, also after a run that failed half-way.

        A broker that does not answer gets no further request.
        """
        if self.control.failure is not None:
            return
        with suppress(BenchError):
            for client in self._clients():
                await client.close()
        with suppress(BenchError):
            for queue in self.queues:
                await self.control.call(commands.Queue.Delete(0, queue, False, False, False))
            if self.exchange:
                await self.control.call(commands.Exchange.Delete(0, self.exchange, False, False))
            await self.control.close()

    def _clients(self) -> Iterable[Peer]:
        return (*self.consumers, *(publisher.sender for publisher in self.publishers))

    def _lanes(self) -> list[list[tuple[int, str]]]:
        """Return the lanes of each publisher: number and queue."""
        lanes: list[list[tuple[int, str]]] = [[] for _ in range(self.plan.publishers)]
        for number, (publisher, queue) in enumerate(self.plan.lanes):
            lanes[publisher].append((number, self.queues[queue]))
        return lanes
