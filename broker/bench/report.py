"""The output of a run: a progress line, then a table or one line of JSON."""

import json
from collections.abc import Iterator
from contextlib import contextmanager

from rich.console import Console
from rich.progress import BarColumn, TaskProgressColumn, TextColumn
from rich.progress import Progress as Bar
from rich.table import Table

from broker.bench.plan import Plan
from broker.bench.result import Result, compute_latencies_us
from broker.bench.runner import Progress
from broker.bench.traffic import Traffic

PLAIN_EVERY_S = 5.0


@contextmanager
def show_progress(console: Console, plan: Plan) -> Iterator[Progress]:
    """Show progress on `console`: a bar with the rates on a terminal, otherwise a line at intervals."""
    meter = Meter()
    if console.is_terminal:
        columns = (BarColumn(bar_width=20), TaskProgressColumn(), TextColumn("{task.description}"))
        with Bar(*columns, console=console, transient=True) as bar:
            task = bar.add_task("starting", total=plan.seconds if plan.count is None else plan.count)

            def move(flow: Traffic, seconds: float) -> None:
                done = seconds if plan.count is None else flow.received or flow.published
                bar.update(task, completed=done, description=meter.line(flow, seconds))

            yield move
        return
    shown_at = 0.0

    def show(flow: Traffic, seconds: float) -> None:
        nonlocal shown_at
        if seconds - shown_at >= PLAIN_EVERY_S:
            shown_at = seconds
            console.print(meter.line(flow, seconds), highlight=False)

    yield show


class Meter:
    """Computes rates from counts since its last call."""

    def __init__(self) -> None:
        self._seconds = 0.0
        self._published = 0
        self._received = 0

    def line(self, flow: Traffic, seconds: float) -> str:
        """Return the progress line `seconds` after the start."""
        elapsed = max(seconds - self._seconds, 1e-9)
        published = (flow.published - self._published) / elapsed
        received = (flow.received - self._received) / elapsed
        self._seconds, self._published, self._received = seconds, flow.published, flow.received
        return (
            f"{seconds:5.1f} s  published {published:>9,.0f}/s  received {received:>9,.0f}/s  "
            f"in flight {flow.published - flow.received:,}"
        )


def print_json(console: Console, result: Result) -> None:
    """Print all figures as one line of JSON."""
    console.out(json.dumps(result.to_json()), highlight=False)


def print_tables(console: Console, result: Result) -> None:
    """Print rates, latencies, costs and checks for people."""
    console.print(_title(result), highlight=False)
    counts = Table(box=None, pad_edge=False)
    for heading in ("", "messages", "per second"):
        counts.add_column(heading, justify="right" if heading else "left")
    for name, count in (
        ("published", result.published),
        ("confirmed", result.confirmed),
        ("received", result.received),
    ):
        if count or name == "published":
            counts.add_row(name, f"{count:,}", f"{result.rate(count):,.0f}")
    console.print(counts)

    times = Table(box=None, pad_edge=False)
    times.add_column("latency, µs")
    rows = (("publish to receipt", result.receipt), ("publish to confirm", result.confirmation))
    measured = [(name, figures) for name, histogram in rows if (figures := compute_latencies_us(histogram))]
    if measured:
        for heading in measured[0][1]:
            times.add_column(heading, justify="right")
        for name, figures in measured:
            times.add_row(name, *(f"{figure:,.0f}" for figure in figures.values()))
        console.print(times)

    if result.broker_cpu_us is not None:
        console.print(f"broker CPU  {result.broker_cpu_us:.2f} µs per message", highlight=False)
    console.print(f"bench CPU   {result.own_cpu_us:.2f} µs per message", highlight=False)
    failed = {name: count for name, count in result.checks.items() if count}
    if failed:
        console.print(
            "FAILED  " + ", ".join(f"{name}: {count:,}" for name, count in failed.items()), style="bold red"
        )
    else:
        console.print("checked  " + ", ".join(f"{name}: 0" for name in result.checks), highlight=False)


def _title(result: Result) -> str:
    plan = result.plan
    kind = "persistent" if plan.persistent else "transient"
    queues = "streams" if plan.stream else "durable queues" if plan.durable else "queues"
    confirm = f", confirms {plan.confirm}" if plan.confirm else ""
    acks = (
        "auto-ack"
        if plan.auto_ack
        else f"ack every {plan.ack_every}, prefetch {plan.prefetch or 'unlimited'}"
    )
    return (
        f"AMQP {plan.protocol}, {plan.publishers} publishers, {plan.consumers} consumers, "
        f"{plan.queues} {queues}, {plan.size} B {kind}{confirm}, {acks}; {result.seconds:.2f} s"
    )
