"""The command `amqpd bench`. Exit status: 0, 1 when a check failed, 2 when the run did not come about."""

import asyncio
from typing import Annotated, Final

import typer
from rich.console import Console

from broker.bench.client import BenchError
from broker.bench.plan import Address, Plan, PlanError
from broker.bench.report import print_json, print_tables, progress_on
from broker.bench.result import Result
from broker.bench.runner import Progress, run

DEFAULT_SECONDS: Final = 10.0
CHECK_FAILED: Final = 1
NOT_CARRIED_OUT: Final = 2


def bench(
    url: Annotated[
        str, typer.Option(help="Broker: amqp://user:password@host:port/vhost.")
    ] = "amqp://guest:guest@127.0.0.1:5672/%2F",
    publishers: Annotated[int, typer.Option(help="Publishing connections.")] = 1,
    consumers: Annotated[int, typer.Option(help="Consuming connections; 0 only fills the queues.")] = 1,
    queues: Annotated[int, typer.Option(help="Queues, shared out evenly.")] = 1,
    size: Annotated[int, typer.Option(help="Bytes of a body, at least 16.")] = 1024,
    persistent: Annotated[bool, typer.Option("--persistent", help="Publish with delivery mode 2.")] = False,
    durable: Annotated[bool, typer.Option("--durable", help="Declare the queues durable.")] = False,
    confirm: Annotated[
        int,
        typer.Option(metavar="WINDOW", help="Publisher confirms, with at most WINDOW outstanding; 0: none."),
    ] = 0,
    prefetch: Annotated[int, typer.Option(help="Unacknowledged messages per consumer; 0: no bound.")] = 0,
    auto_ack: Annotated[bool, typer.Option("--auto-ack", help="Consume without acknowledgements.")] = False,
    ack_every: Annotated[int, typer.Option(help="Acknowledge every so many messages at once.")] = 1,
    rate: Annotated[float, typer.Option(help="Messages per second altogether; 0: as fast as it goes.")] = 0.0,
    in_flight: Annotated[
        int, typer.Option(help="Messages published and not yet received, altogether; 0: no bound.")
    ] = 10_000,
    duration: Annotated[
        float | None,
        typer.Option(metavar="SECONDS", help=f"Publish for so long. [default: {DEFAULT_SECONDS:g}]"),
    ] = None,
    count: Annotated[int | None, typer.Option(help="Publish so many messages altogether, instead.")] = None,
    broker_pid: Annotated[
        int | None,
        typer.Option(help="Process of a broker on this machine: measure its CPU time, children's too."),
    ] = None,
    as_json: Annotated[
        bool, typer.Option("--json", help="Print one line of JSON instead of tables.")
    ] = False,
) -> None:
    """Load a broker, check that every message arrives once and in order, and measure."""
    errors = Console(stderr=True)
    try:
        plan = Plan(
            address=Address.parse(url),
            publishers=publishers,
            consumers=consumers,
            queues=queues,
            size=size,
            persistent=persistent,
            durable=durable,
            confirm=confirm,
            prefetch=prefetch,
            auto_ack=auto_ack,
            ack_every=ack_every,
            rate=rate,
            in_flight=in_flight,
            seconds=DEFAULT_SECONDS if duration is None and count is None else duration,
            count=count,
        )
        with progress_on(errors) as progress:
            result = carry_out(plan, broker_pid, progress)
    except (PlanError, BenchError) as error:
        errors.print(f"amqpd bench: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(NOT_CARRIED_OUT) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(NOT_CARRIED_OUT) from error
    (print_json if as_json else print_tables)(Console(), result)
    if not result.ok:
        raise typer.Exit(CHECK_FAILED)


def carry_out(plan: Plan, broker_pid: int | None, progress: Progress) -> Result:
    """Run `plan` in an event loop of its own. Raises BenchError."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(plan, broker_pid, progress))
