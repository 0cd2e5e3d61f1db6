"""The longest loop turn during operations on a whole queue."""

from collections.abc import Callable

from pamqp.commands import Basic, Queue
from pamqp.common import FieldTable

from tests.bench.loop import Figure, LoopBench

TENANTS = 1000


def purge(scale: float) -> list[Figure]:
    """queue.purge of 10^6 messages."""
    bench, count = _filled(scale)
    client = bench.open()
    bench.ask(client, Queue.Purge(queue="q"))
    bench.loop.run()
    [answer] = client.frames()
    assert isinstance(answer, Queue.PurgeOk)
    assert answer.message_count == count
    return [_longest(bench, f"purging {count:,}")]


def delete(scale: float) -> list[Figure]:
    """queue.delete of 10^6 messages; of 100,000 that a client has."""
    bench, count = _filled(scale)
    bench.ask(bench.open(), Queue.Delete(queue="q"))
    bench.loop.run()
    ready = _longest(bench, f"deleting a queue of {count:,}")
    bench, count = _filled(scale / 10)
    bench.consumer("q")
    bench.loop.run()
    bench.loop.restart()
    bench.ask(bench.open(), Queue.Delete(queue="q"))
    bench.loop.run()
    return [ready, _longest(bench, f"deleting a queue of which a client has {count:,}")]


def expiry(scale: float) -> list[Figure]:
    """10^6 messages expire in the same moment; they are discarded, or dead-lettered."""
    figures = []
    for name, more in (
        ("discarded", {}),
        ("dead-lettered", {"dead_letter_exchange": "", "dead_letter_routing_key": "d"}),
    ):
        bench, count = _filled(scale, message_ttl=600_000, **more)
        dead = bench.declare("d")
        bench.loop.advance(700_000)
        bench.loop.run()
        assert dead.ready == (count if more else 0)
        assert bench.broker.vhosts["/"].topology.queues["q"].ready == 0
        figures.append(_longest(bench, f"{count:,} expire, {name}"))
    return figures


def groups(scale: float) -> list[Figure]:
    """A consumer with 100,000 groups, half of them with an unacked message: another comes, or it goes."""
    figures = []
    cases: tuple[tuple[str, bool, FieldTable | None], ...] = (
        ("another comes, and they move", True, {}),
        ("another is served alone", False, {"x-exclusive-consumer": True}),
        ("it goes", False, None),
    )
    for name, rebalances, arguments in cases:
        bench = LoopBench()
        count = int(1_000_000 * scale)
        keys = count // 10
        queue = bench.declare("q", group_key="key", group_rebalance=rebalances)
        bench.fill(bench.open(), "q", count, _one_of(keys))
        first = bench.consumer("q", keys // 2)
        bench.loop.run()
        bench.ask(first, Basic.Ack(0, True))
        bench.loop.run()
        if arguments is None:
            bench.consumer("q", 100)
            bench.loop.run()
        assert (queue.unacked, queue.ready) == (keys // 2, count - keys)
        bench.loop.restart()
        if arguments is not None:
            bench.consumer("q", 100, arguments)
        else:
            bench.loop.turn(lambda first=first: first.connection.on_lost("reset"))  # type: ignore[misc]
        bench.loop.run()
        figures.append(_longest(bench, f"a consumer has {keys:,} groups, {name}"))
    return figures


def selectors(scale: float) -> list[Figure]:
    """A selector for 0.1 % of 10^6 messages: the first match, later matches, the longest turn."""
    bench = LoopBench()
    count = int(1_000_000 * scale)
    queue = bench.declare("q")
    bench.fill(
        bench.open(),
        "q",
        count,
        lambda n: {"tenant": f"t{(n + 500) % TENANTS}", "kind": "order", "level": (n + 500) % TENANTS},
    )
    figures = []
    for text in ("tenant = 't7'", "level = 7", "tenant LIKE 't7'", "level * 2 = 14 AND kind IS NOT NULL"):
        figures += _select(bench, text, count // TENANTS)
        assert queue.ready == count
    return figures


def index(scale: float) -> list[Figure]:
    """The same with x-index: each match is looked up."""
    bench = LoopBench()
    count = int(1_000_000 * scale)
    bench.declare("q", index="tenant")
    bench.fill(bench.open(), "q", count, lambda n: {"tenant": f"t{(n + 500) % TENANTS}"})
    return _select(bench, "tenant = 't7'", count // TENANTS)


def _select(bench: LoopBench, text: str, matches: int) -> list[Figure]:
    loop = bench.loop
    loop.restart()
    client = bench.open()
    client.send(Basic.Qos(0, 1, True), 1)
    client.frames()
    spent = bench.ask(client, Basic.Consume(queue="q", arguments={"x-filter-jms-selector": text}))
    further: list[float] = []
    first = 0.0
    for tag in range(1, matches + 1):
        while client.edge.written.count(b"\x00\x3c\x00\x3c") < 1:
            before = loop.longest
            loop.longest = 0.0
            assert loop.step(), f"{text}: match {tag} of {matches}"
            spent += loop.longest
            loop.longest = max(before, loop.longest)
        if tag == 1:
            first = spent
        else:
            further.append(spent)
        client.edge.written.clear()
        spent = bench.ask(client, Basic.Nack(delivery_tag=tag, requeue=True)) if tag > matches else 0.0
        spent += bench.ask(client, Basic.Qos(0, tag + 1, True))
    client.connection.on_lost("")
    loop.run()
    return [
        Figure(f"{text}: first match", first * 1e3, "ms", 50),
        Figure(f"{text}: further ones, mean", sum(further) / len(further) * 1e3, "ms", 1),
        Figure(f"{text}: longest turn", loop.longest * 1e3, "ms", 10),
    ]


def _one_of(keys: int) -> Callable[[int], FieldTable]:
    """The headers of messages that go round so many groups."""
    return lambda n: {"key": f"k{n % keys}"}


def _filled(scale: float, **arguments: object) -> tuple[LoopBench, int]:
    bench = LoopBench()
    count = int(1_000_000 * scale)
    bench.declare("q", **arguments)
    bench.fill(bench.open(), "q", count)
    bench.loop.restart()
    return bench, count


def _longest(bench: LoopBench, what: str) -> Figure:
    return Figure(f"{what}: longest of {bench.loop.turns} turns", bench.loop.longest * 1e3, "ms", 10)
