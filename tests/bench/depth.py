"""The costs of a long backlog: a browser in it, and settlement or return of very many messages."""

from statistics import median

from pamqp.commands import Basic, Tx

from tests.bench.loop import Figure, LoopBench
from tests.bench.traffic import Traffic

ROUNDS = 7
BATCHES = 100


def browser(scale: float) -> list[Figure]:
    """The cost of consumers' messages while a client browses a backlog of 10^6."""
    bench = LoopBench()
    queue = bench.declare("q")
    count = int(1_000_000 * scale)
    bench.fill(bench.open(), "q", count)
    traffic = Traffic(bench, "q")
    traffic.cost(BATCHES)
    rounds = []
    for _ in range(ROUNDS):
        alone = traffic.cost(BATCHES)
        looker = bench.consumer("q", 0, {"x-browse": True}, no_ack=True)
        beside = traffic.cost(BATCHES)
        assert looker.edge.written, "the browser saw something"
        looker.connection.on_lost("")
        rounds.append((alone, beside))
    assert queue.ready + queue.unacked >= count
    return [
        Figure(f"{count:,} ready: consumers alone", median(one for one, _ in rounds), "us"),
        Figure("with a browser", median(other for _, other in rounds), "us"),
        Figure("ratio", median(other / one for one, other in rounds), "", 1.1),
    ]


def settle(scale: float) -> list[Figure]:
    """A single basic.ack or basic.nack of 100,000 messages; rejected messages are dead-lettered."""
    count = int(100_000 * scale)
    figures = []
    for name, frame, rounds in (
        ("acknowledging", Basic.Ack(0, True), ROUNDS),
        ("dead-lettering", Basic.Nack(0, True, False), 1),
    ):
        took = []
        for _ in range(rounds):
            bench = LoopBench()
            queue = bench.declare("q", dead_letter_exchange="", dead_letter_routing_key="d")
            letters = bench.declare("d")
            bench.fill(bench.open(), "q", count)
            holder = bench.consumer("q")
            bench.loop.run()
            bench.loop.restart()
            bench.ask(holder, frame)
            bench.loop.run()
            took.append(bench.loop.longest)
            assert (queue.unacked, queue.acked + letters.ready) == (0, count)
        figures.append(Figure(f"{name} {count:,}: longest turn", median(took) * 1e3, "ms", 10))
    return figures


def transact(scale: float) -> list[Figure]:
    """100,000 messages are acknowledged in a transaction."""
    count = int(100_000 * scale)
    sent_at, committed = [], []
    for _ in range(ROUNDS):
        bench = LoopBench()
        queue = bench.declare("q")
        bench.fill(bench.open(), "q", count)
        holder = bench.consumer("q")
        bench.loop.run()
        bench.ask(holder, Tx.Select())
        sent_at.append(bench.ask(holder, Basic.Ack(0, True)))
        bench.loop.restart()
        bench.ask(holder, Tx.Commit())
        bench.loop.run()
        committed.append(bench.loop.longest)
        assert (queue.unacked, queue.acked) == (0, count)
    return [
        Figure(f"acknowledging {count:,}", median(sent_at) * 1e3, "ms", 10),
        Figure("its commit: longest turn", median(committed) * 1e3, "ms", 10),
    ]


def release(scale: float) -> list[Figure]:
    """A client with 100,000 unacknowledged messages is lost: all are back in place."""
    count = int(100_000 * scale)
    figures = []
    for name, arguments in (
        ("standard", {}),
        ("priority", {"max_priority": 10}),
        ("retrying", {"retry_min": 1000}),
    ):
        took = []
        for _ in range(ROUNDS):
            bench = LoopBench()
            queue = bench.declare("q", **arguments)
            bench.fill(bench.open(), "q", count)
            holder = bench.consumer("q")
            bench.loop.run()
            assert queue.unacked == count
            bench.loop.restart()
            bench.loop.turn(lambda holder=holder: holder.connection.on_lost("reset"))  # type: ignore[misc]
            bench.loop.run()
            took.append(bench.loop.longest)
            assert (queue.ready + queue.held, queue.unacked) == (count, 0)
        figures.append(Figure(f"{name}: longest turn of giving back {count:,}", median(took) * 1e3, "ms", 10))
    return figures
