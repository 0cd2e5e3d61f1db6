"""The commands `amqpd journal`. Exit status: 0, 1 when the command failed, 2 when it found faults."""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Final

import typer

from broker.journal.life import format_event, trace_message
from broker.journal.reader import JournalError, JournalReader
from broker.journal.verification import Verification, check_sealed_files
from broker.progress import show_progress
from protocol.journal.records import OPS
from protocol.journal.rows import EventRow

FAILED: Final = 1
FOUND: Final = 2
SECONDS_OF_HOUR: Final = 3600
PAUSE_SECONDS: Final = 5.0

Folder = Annotated[
    Path, typer.Argument(help="Folder of the journal, by default the folder journal in the data folder.")
]
Node = Annotated[str | None, typer.Option(help="Only the journal of this node.")]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON, one line for each event.")]

app = typer.Typer(
    no_args_is_help=True, help="Read, verify and seal the journal, also beside a running broker."
)


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """Turn errors into a single line and exit status 1."""
    try:
        yield
    except BrokenPipeError:
        raise typer.Exit(FAILED) from None
    except (JournalError, OSError) as error:
        typer.echo(f"amqpd journal: {error}", err=True)
        raise typer.Exit(FAILED) from None


def _line(as_json: bool) -> Callable[[EventRow], str]:
    return (lambda row: json.dumps(row._asdict())) if as_json else format_event


def _report_damages(reading: JournalReader) -> None:
    """Print the unreadable parts, and set the exit status."""
    for damage in reading.damages:
        typer.echo(damage.text(), err=True)
    if reading.damages:
        raise typer.Exit(FOUND)


@app.command()
def cat(
    folder: Folder,
    node: Node = None,
    queue: Annotated[str | None, typer.Option(help="Only events of this queue.")] = None,
    op: Annotated[
        list[str] | None, typer.Option(help="Only events of this operation; may be given several times.")
    ] = None,
    since: Annotated[float, typer.Option(help="Only events of so many last seconds; 0: all.")] = 0,
    as_json: AsJson = False,
) -> None:
    """Print the events of the journal, a line for each."""
    wanted = set(op or OPS)
    unknown = wanted.difference(OPS)
    if unknown:
        raise typer.BadParameter(f"no operation '{min(unknown)}'; there are {', '.join(OPS[1:])}")
    from_time = int((time.time() - since) * 1e6) if since > 0 else 0
    line = _line(as_json)
    with _errors_in_one_line():
        reading = JournalReader(folder, node)
        for row in reading.rows():
            if row.op in wanted and row.ts >= from_time and queue in (None, row.queue):
                print(line(row))  # noqa: T201
        sys.stdout.flush()
        _report_damages(reading)


@app.command()
def verify(folder: Folder, node: Node = None, as_json: AsJson = False) -> None:
    """Verify the files against the manifest, that no event is missing, and that each queue adds up."""
    with _errors_in_one_line():
        verification = Verification()
        held = check_sealed_files(folder)
        damages: list[str] = []
        try:
            reading = JournalReader(folder, node)
            verification.take(reading.rows())
            damages = [damage.text() for damage in reading.damages]
        except JournalError as error:
            if not held.faults:
                raise
            damages = [str(error)]
    faults = [
        f"{folder / fault.file}: {fault.text}" if fault.file else fault.text
        for fault in held.faults
        if node is None or fault.node in (None, node)
    ]
    for text in dict.fromkeys([*faults, *damages]):
        verification.find(text)
    total = len(verification.findings) + verification.unmentioned
    if as_json:
        summary = {
            "events": verification.events,
            "queues": verification.queues,
            "balances": verification.checked,
            "gaps": verification.gaps,
            "findings": verification.findings,
            "findings_total": total,
        }
        print(json.dumps(summary))  # noqa: T201
    else:
        for finding in verification.findings:
            print(finding)  # noqa: T201
        print(  # noqa: T201
            f"{verification.events} events, {verification.queues} queues, {verification.checked} balances, "
            f"{verification.gaps} gaps: {total} findings"
        )
    if total:
        raise typer.Exit(FOUND)


@app.command()
def seal(
    folder: Folder,
    retention: Annotated[
        float, typer.Option(help="Hours after which raw files are deleted; negative: never.")
    ] = 24,
    follow: Annotated[bool, typer.Option("--follow", help="Go on whenever a file is complete.")] = False,
) -> None:
    """Seal complete files as Parquet, and delete old raw ones."""
    if find_spec("pyarrow") is None:
        typer.echo("amqpd journal: sealing needs pyarrow: pip install 'amqpd[journal]'", err=True)
        raise typer.Exit(FAILED)
    from broker.journal.seal import BusyError

    damaged = False
    while True:
        with _errors_in_one_line():
            try:
                damaged |= _seal_once(folder, retention)
            except BusyError:
                if not follow:  # with `follow` it waits: another process, such as `retain`, may take minutes
                    raise
        if not follow:
            break
        time.sleep(PAUSE_SECONDS)
    if damaged:
        raise typer.Exit(FOUND)


def _seal_once(folder: Path, retention: float) -> bool:
    """Seal complete files and delete old ones; return whether a part was unreadable."""
    from broker.journal.seal import delete_sealed
    from broker.journal.seal import seal as sealing

    damaged = False
    with show_progress("seal") as advance:
        for done, each in enumerate(sealing(folder), 1):
            advance(done, done + each.remaining)
            print(f"{each.sealed.file}: {each.sealed.rows} events", flush=True)  # noqa: T201
            for hole in each.holes:
                damaged = True
                typer.echo(f"bytes {hole.start} to {hole.end} of it could not be read", err=True)
    if retention >= 0:
        for path in delete_sealed(folder, time.time(), retention * SECONDS_OF_HOUR):
            print(f"{path}: deleted", flush=True)  # noqa: T201
    return damaged


@app.command()
def status(folder: Folder, as_json: AsJson = False) -> None:
    """Show the files of the journal, and how many are sealed."""
    with _errors_in_one_line():
        reading = JournalReader(folder)
        fields = {
            "raw_files": len(reading.live),
            "raw_bytes": reading.raw_bytes(),
            "sealed_only_files": len(reading.sealed),
            "sealed_only_events": sum(each.rows for each in reading.sealed),
            "oldest_raw": reading.live[0].name if reading.live else None,
            "newest_raw": reading.live[-1].name if reading.live else None,
        }
    if as_json:
        print(json.dumps(fields))  # noqa: T201
        return
    for name, value in fields.items():
        print(f"{name.replace('_', ' '):<20} {value}")  # noqa: T201


@app.command()
def show(
    folder: Folder,
    message_id: Annotated[str | None, typer.Option(help="Property message-id of the message.")] = None,
    msg_uid: Annotated[int | None, typer.Option(help="Number of the message in the journal.")] = None,
    node: Node = None,
    as_json: AsJson = False,
) -> None:
    """Show the life of a message, with its dead letters and copies."""
    if (message_id is None) == (msg_uid is None):
        raise typer.BadParameter("no message is named: set --message-id or --msg-uid")
    line = _line(as_json)
    with _errors_in_one_line():
        reading = JournalReader(folder, node)
        rows = trace_message(reading.rows, message_id, msg_uid)
        for row in rows:
            print(line(row))  # noqa: T201
    if not rows:
        name = f"message-id '{message_id}'" if msg_uid is None else f"number {msg_uid}"
        typer.echo(f"amqpd journal: no message with {name} in {folder}", err=True)
    _report_damages(reading)
    if not rows:
        raise typer.Exit(FOUND)
