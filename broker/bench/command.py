"""The command `amqpd bench`. Exit status: 0, 1 when a check failed, 2 when the run could not be done."""

import asyncio
from typing import Annotated, Final

import typer
from rich.console import Console

from broker.bench.connection import BenchError
from broker.bench.plan import Address, Plan, PlanError
from broker.bench.report import print_json, print_tables, show_progress
from broker.bench.result import Result
from broker.bench.runner import Progress, run

DEFAULT_SECONDS: Final = 10.0
CHECK_FAILED: Final = 1
NOT_CARRIED_OUT: Final = 2


Protocol = Annotated[str, typer.Option(help="Protocol of publishers and consumers: 0-9-1 or 1.0.")]
Url = Annotated[str, typer.Option(help="Address of the broker: amqp://user:password@host:port/vhost.")]
Publishers = Annotated[int, typer.Option(help="Number of publishing connections.")]
Consumers = Annotated[int, typer.Option(help="Number of consuming connections; 0 only fills the queues.")]
Queues = Annotated[int, typer.Option(help="Number of queues, shared out evenly.")]
Size = Annotated[int, typer.Option(help="Bytes of a body, at least 16.")]
Persistent = Annotated[bool, typer.Option("--persistent", help="Publish with delivery mode 2.")]
Durable = Annotated[bool, typer.Option("--durable", help="Declare the queues durable.")]
Stream = Annotated[bool, typer.Option("--stream", help="Declare streams.")]
Confirm = Annotated[
    int,
    typer.Option(metavar="WINDOW", help="Largest number of outstanding publisher confirms; 0: no confirms."),
]
Prefetch = Annotated[
    int, typer.Option(help="Largest number of unacknowledged messages of a consumer; 0: no limit.")
]
AutoAck = Annotated[bool, typer.Option("--auto-ack", help="Consume without acknowledgements.")]
AckEvery = Annotated[int, typer.Option(help="Number of messages that one acknowledgement covers.")]
Rate = Annotated[float, typer.Option(help="Messages per second in all; 0: as fast as possible.")]
InFlight = Annotated[
    int,
    typer.Option(help="Largest number of published messages that are not yet received, in all; 0: no limit."),
]
Bindings = Annotated[
    int, typer.Option(help="Bindings of the topic exchange to publish through; 0: the default exchange.")
]
Keys = Annotated[
    int, typer.Option(help="Routing keys for each queue, with --bindings; 0: a new one each time.")
]
Duration = Annotated[
    float | None,
    typer.Option(metavar="SECONDS", help=f"Seconds of publishing (default: {DEFAULT_SECONDS:g})."),
]
Count = Annotated[int | None, typer.Option(help="Number of messages in all, instead of --duration.")]
BrokerPid = Annotated[
    int | None, typer.Option(help="Process id of a broker on this machine, whose CPU time is measured.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print one line of JSON instead of tables.")]


def bench(
    url: Url = "amqp://guest:guest@127.0.0.1:5672/%2F",
    protocol: Protocol = "0-9-1",
    publishers: Publishers = 1,
    consumers: Consumers = 1,
    queues: Queues = 1,
    size: Size = 1024,
    persistent: Persistent = False,
    durable: Durable = False,
    stream: Stream = False,
    confirm: Confirm = 0,
    prefetch: Prefetch = 0,
    auto_ack: AutoAck = False,
    ack_every: AckEvery = 1,
    rate: Rate = 0.0,
    in_flight: InFlight = 10_000,
    bindings: Bindings = 0,
    keys: Keys = 1,
    duration: Duration = None,
    count: Count = None,
    broker_pid: BrokerPid = None,
    as_json: AsJson = False,
) -> None:
    """Load a broker, check that every message arrives once and in order, and measure."""
    errors = Console(stderr=True)
    try:
        plan = Plan(
            address=Address.parse(url),
            protocol=protocol,
            publishers=publishers,
            consumers=consumers,
            queues=queues,
            size=size,
            persistent=persistent,
            durable=durable,
            stream=stream,
            confirm=confirm,
            prefetch=prefetch,
            auto_ack=auto_ack,
            ack_every=ack_every,
            rate=rate,
            in_flight=in_flight,
            bindings=bindings,
            keys=keys,
            seconds=DEFAULT_SECONDS if duration is None and count is None else duration,
            count=count,
        )
        with show_progress(errors, plan) as progress:
            result = run_plan(plan, broker_pid, progress)
    except (PlanError, BenchError) as error:
        errors.print(f"amqpd bench: {error}", style="red", highlight=False, markup=False, soft_wrap=True)
        raise typer.Exit(NOT_CARRIED_OUT) from error
    except KeyboardInterrupt as error:
        raise typer.Exit(NOT_CARRIED_OUT) from error
    (print_json if as_json else print_tables)(Console(), result)
    if not result.ok:
        raise typer.Exit(CHECK_FAILED)


def run_plan(plan: Plan, broker_pid: int | None, progress: Progress) -> Result:
    """Run `plan` in an event loop of its own. Raises BenchError."""
    import uvloop

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(run(plan, broker_pid, progress))
