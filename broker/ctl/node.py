"""The broker as a whole: alive, busy, configured, stopped, and described for a bug report."""

import io
import json
import os
import sys
import tarfile
import time
from collections.abc import Callable, Mapping
from typing import Annotated, Any, Final

import typer

from broker import __version__
from broker.ctl.client import Client, RefusedError, UnreachableError
from broker.ctl.output import HIDDEN, field_at, print_json, printable, without_secrets
from broker.ctl.session import (
    REFUSED,
    UNREACHABLE,
    Session,
    end_command,
    find_node,
    open_session,
    options_of,
)
from broker.progress import show_progress

POLL_SECONDS: Final = 0.5
PING_SECONDS: Final = 60.0

RATES: Final = {
    "in/s": "message_stats.publish_details.rate",
    "out/s": "message_stats.deliver_get_details.rate",
    "ack/s": "message_stats.ack_details.rate",
}
"""The columns of `top` with rates, and their fields."""

TOP: Final = {
    "queue": "name",
    "vhost": "vhost",
    "ready": "messages_ready",
    "unacked": "messages_unacknowledged",
    "consumers": "consumers",
    **RATES,
}
"""The columns of `top`, and their fields."""

ORDERS: Final = {
    "busy": (RATES["in/s"], RATES["out/s"]),
    "in": (RATES["in/s"],),
    "out": (RATES["out/s"],),
    "messages": ("messages",),
    "unacked": ("messages_unacknowledged",),
    "consumers": ("consumers",),
}
"""The orders of `top`, and the fields whose sum decides."""

QUEUE_SUMMARY: Final = (
    "name",
    "vhost",
    "type",
    "durable",
    "exclusive",
    "state",
    "messages_ready",
    "messages_unacknowledged",
    "message_bytes",
    "consumers",
    "policy",
    "arguments",
    "memory",
    "idle_since",
)
CONNECTION_SUMMARY: Final = (
    "name",
    "user",
    "vhost",
    "protocol",
    "state",
    "channels",
    "connected_at",
    "client_properties",
    "recv_oct",
    "send_oct",
)

Timeout = Annotated[float, typer.Option("--timeout", "-t", min=0, help="Seconds to wait at most.")]


def status(context: typer.Context) -> None:
    """Show the version of the broker, its alarms, and the numbers of its objects."""
    with open_session(context) as session:
        overview = session.client.get("overview")
        if session.output.is_json:
            print_json(overview)
            return
        facts = {name: overview[name] for name in ("product_name", "product_version", "flavour", "node")}
        facts["alarms"] = _alarms(session.client) or "none"
        facts |= overview["object_totals"]
        totals = overview["queue_totals"]
        facts |= {name: totals[name] for name in ("messages_ready", "messages_unacknowledged")}
        session.output.show_object({name: str(value) for name, value in facts.items()})


def _alarms(client: Client) -> str:
    """Return why publishers wait; "" if they do not. Raises UnreachableError."""
    try:
        client.fetch("/health/alarms")
    except RefusedError as error:
        return str(error)
    return ""


def version(context: typer.Context) -> None:
    """Show the version of amqpctl; server_version shows that of the broker."""
    typer.echo(__version__)


def server_version(context: typer.Context) -> None:
    """Show the version of the broker."""
    with open_session(context, has_user=False) as session:
        typer.echo(json.loads(session.client.fetch("/"))["version"])


def ping(context: typer.Context, timeout: Timeout = PING_SECONDS) -> None:
    """Check that the broker answers. No user is needed."""
    with open_session(context, has_user=False) as session:
        session.client.patience = timeout or PING_SECONDS
        session.client.fetch("/health/live")
        typer.echo(f"{session.client.url} answers")


def await_startup(context: typer.Context, timeout: Timeout = 300.0) -> None:
    """Wait until the broker serves clients. No user is needed."""
    with open_session(context, has_user=False) as session, show_progress("await startup"):
        _wait_until(lambda: session.client.fetch("/health/ready"), timeout)


def _wait_until(attempt: Callable[[], object], timeout: float) -> None:
    """Repeat an attempt until the broker accepts it. Raises the last error at the end of the time."""
    end = time.monotonic() + timeout
    while True:
        try:
            attempt()
        except (RefusedError, UnreachableError):
            if time.monotonic() >= end:
                raise
        else:
            return
        time.sleep(min(POLL_SECONDS, max(0.0, end - time.monotonic())))


def suspend_listeners(context: typer.Context) -> None:
    """Accept no more connections of AMQP clients until `resume_listeners`. Open connections go on."""
    with open_session(context) as session:
        session.client.put("nodes", find_node(session), "listeners", body={"suspended": True})


def resume_listeners(context: typer.Context) -> None:
    """Accept connections of AMQP clients again."""
    with open_session(context) as session:
        session.client.put("nodes", find_node(session), "listeners", body={"suspended": False})


def shutdown(
    context: typer.Context,
    reason: Annotated[
        str, typer.Option("--reason", metavar="TEXT", help="Reason for the broker's log.")
    ] = "",
    wait: Annotated[bool, typer.Option("--wait/--no-wait", help="Wait until the broker has ended.")] = True,
    timeout: Timeout = 300.0,
) -> None:
    """Stop the broker as SIGTERM does. A supervisor may start the broker again."""
    with open_session(context) as session:
        client = session.client
        client.post("nodes", find_node(session), "shutdown", body={"reason": reason})
        end = time.monotonic() + timeout
        with show_progress("shut down"):
            while wait:
                try:
                    client.fetch("/health/live")
                except UnreachableError:
                    return
                except RefusedError:
                    pass
                if time.monotonic() >= end:
                    raise end_command(f"{client.url} still answers after {timeout:g} s", UNREACHABLE)
                time.sleep(POLL_SECONDS)


def environment(context: typer.Context) -> None:
    """List the settings in effect, each with the place that set it. Secrets are not shown."""
    with open_session(context) as session:
        session.output.show(session.client.get("config", "effective"), ("name", "value", "source"))


def set_log_level(
    context: typer.Context,
    level: Annotated[str, typer.Argument(metavar="LEVEL", help="debug, info, warning or error.")],
) -> None:
    """Change the least severity that the broker logs, until its next start."""
    _change_setting(context, "log_level", level)


def set_vm_memory_high_watermark(
    context: typer.Context,
    limit: Annotated[
        list[str],
        typer.Argument(
            metavar="FRACTION | absolute SIZE", help='Share of the memory (0.6), or "absolute" and 2GiB.'
        ),
    ],
) -> None:
    """Change the memory above which publishers wait, until the next start: the setting memory_max."""
    _change_setting(context, "memory_max", _memory_limit(limit))


def _memory_limit(words: list[str]) -> str:
    """Return a limit of memory in the form of the settings. Raises typer.BadParameter."""
    kind, value = (words[0], words[1]) if len(words) == 2 else ("relative", words[0])
    if len(words) > 2 or kind not in ("absolute", "relative"):
        raise typer.BadParameter("the limit is a fraction such as 0.6, or: absolute 2GiB")
    if kind == "absolute" or value.endswith("%"):
        return value
    try:
        return f"{float(value) * 100:f}%"
    except ValueError as error:
        raise typer.BadParameter(
            f"'{value}' is not a fraction such as 0.6; a size follows the word absolute"
        ) from error


def set_disk_free_limit(
    context: typer.Context,
    size: Annotated[str, typer.Argument(metavar="SIZE", help="Free space, such as 1GiB.")],
) -> None:
    """Change the free space below which publishers wait, until the next start: the setting disk_free_min."""
    _change_setting(context, "disk_free_min", size)


def _change_setting(context: typer.Context, name: str, value: str) -> None:
    with open_session(context) as session:
        session.client.put("config", "effective", name, body={"value": value})


def top(
    context: typer.Context,
    once: Annotated[bool, typer.Option("--once", help="Print the list once, for scripts.")] = False,
    interval: Annotated[float, typer.Option(min=0.2, help="Seconds between two refreshes.")] = 2.0,
    count: Annotated[int, typer.Option(min=1, max=500, help="Number of queues.")] = 20,
    order: Annotated[str, typer.Option("--sort", help=f"{', '.join(ORDERS)}.")] = "busy",
    vhost: Annotated[
        str, typer.Option("--vhost", "-p", metavar="NAME", help="Only queues of this virtual host.")
    ] = "",
) -> None:
    """Show the busiest queues and the rates of the broker, again and again at a terminal."""
    if order not in ORDERS:
        raise typer.BadParameter(f"'{order}' is not one of {', '.join(ORDERS)}")
    with open_session(context) as session:
        if once or not sys.stdout.isatty():
            rows = _busiest(session.client, order, count, vhost)
            session.output.show(rows, tuple(TOP), tuple(TOP.values()))
            return
        _show_live(session, interval, lambda: _busiest(session.client, order, count, vhost))


def _busiest(client: Client, order: str, count: int, vhost: str) -> list[dict[str, Any]]:
    """Return the first queues in an order: of each field of the order, the queues with the largest values."""
    columns = ",".join(dict.fromkeys([*TOP.values(), "messages"]))
    query = {"page": "1", "page_size": str(count), "sort_reverse": "true", "columns": columns}
    found: dict[tuple[str, str], dict[str, Any]] = {}
    for field in ORDERS[order]:
        page = client.get("queues", *([vhost] if vhost else []), sort=field, **query)
        found |= {(row["vhost"], row["name"]): row for row in page["items"]}

    def weight(row: Mapping[str, Any]) -> float:
        return sum(float(field_at(row, field) or 0) for field in ORDERS[order])

    return sorted(found.values(), key=lambda row: (-weight(row), row["vhost"], row["name"]))[:count]


def _show_live(session: Session, interval: float, load: Callable[[], list[dict[str, Any]]]) -> None:
    """Show the queues at a terminal until Ctrl-C."""
    from rich.console import Console, Group  # here: other commands start faster without Rich
    from rich.live import Live
    from rich.table import Table
    from rich.text import Text

    def draw() -> Group:
        rows = load()
        table = Table(box=None, pad_edge=False, expand=True)
        for name in TOP:
            is_text = name in ("queue", "vhost")
            table.add_column(
                name, justify="left" if is_text else "right", no_wrap=True, ratio=3 if is_text else 1
            )
        for row in rows:
            cells = [field_at(row, field) for field in TOP.values()]
            table.add_row(*(Text(printable(str(0 if cell is None else cell))) for cell in cells))
        return Group(*(Text(line) for line in _headlines(session.client)), Text(""), table)

    try:
        with Live(draw(), console=Console(), screen=True, auto_refresh=False) as live:
            while True:
                time.sleep(interval)
                live.update(draw(), refresh=True)
    except KeyboardInterrupt:
        return


def _headlines(client: Client) -> list[str]:
    """Return the lines about the whole broker."""
    overview = client.get("overview")
    totals, objects = overview["queue_totals"], overview["object_totals"]
    rates = {name: field_at(overview, field) or 0 for name, field in RATES.items()}
    return [
        f"{overview['product_name']} {overview['product_version']}  {overview['node']}  "
        f"{time.strftime('%H:%M:%S')}  Ctrl-C ends",
        "  ".join(f"{name} {rate:,.0f}" for name, rate in rates.items())
        + f"  ready {totals['messages_ready']:,}  unacked {totals['messages_unacknowledged']:,}  "
        f"queues {objects['queues']:,}  connections {objects['connections']:,}  "
        f"consumers {objects['consumers']:,}",
        f"alarms: {_alarms(client) or 'none'}",
    ]


Collector = Callable[[Client], Any]

PARTS: Final[dict[str, Collector]] = {
    "overview": lambda client: client.get("overview"),
    "nodes": lambda client: client.get("nodes"),
    "memory": lambda client: client.get("nodes", client.get("overview")["node"], "memory"),
    "alarms": lambda client: _alarms(client) or "none",
    "settings": lambda client: client.get("config", "effective"),
    "vhosts": lambda client: client.get("vhosts"),
    "queues": lambda client: client.get("queues", columns=",".join(QUEUE_SUMMARY)),
    "connections": lambda client: client.get("connections", columns=",".join(CONNECTION_SUMMARY)),
    "consumers": lambda client: client.get("consumers"),
    "shovels": lambda client: client.get("shovels"),
    "federation-links": lambda client: client.get("federation-links"),
    "dispatchers": lambda client: client.get("dispatchers"),
    "definitions": lambda client: client.get("definitions"),
}
"""The parts of a report, and the functions that load them."""


def _collect(client: Client) -> tuple[dict[str, Any], dict[str, str]]:
    """Load all parts of a report without secrets; return them, and the reasons why parts are missing."""
    parts: dict[str, Any] = {}
    missing: dict[str, str] = {}
    with show_progress("collect") as advance:
        for number, (name, load) in enumerate(PARTS.items()):
            advance(number, len(PARTS))
            try:
                parts[name] = without_secrets(load(client))
            except RefusedError as error:
                missing[name] = str(error)
    return parts, missing


def report(context: typer.Context) -> None:
    """Print the state of the broker for a bug report, without secrets and without messages."""
    with open_session(context) as session:
        client = session.client
        client.get("whoami")  # a wrong password is an error, not a missing part
        parts, missing = _collect(client)
        if session.output.is_json:
            print_json(parts | ({"missing": missing} if missing else {}))
            return
        for name, part in parts.items():
            sys.stdout.write(f"== {name}\n{json.dumps(part, indent=1)}\n\n")
        for name, reason in missing.items():
            sys.stdout.write(f"== {name}\nmissing: {reason}\n\n")


def diagnose(
    context: typer.Context,
    file: Annotated[str, typer.Argument(metavar="FILE", help="Archive to write, such as report.tar.gz.")],
) -> None:
    """Write an archive for a bug report: state, settings, metrics, definitions; no secrets, no messages."""
    with open_session(context) as session:
        client = session.client
        client.get("whoami")
        parts, missing = _collect(client)
        contents = {f"{name}.json": json.dumps(part, indent=1) for name, part in parts.items()}
        contents["metrics.txt"] = without_secrets(client.fetch("/metrics").decode(errors="replace"))
        contents["about.json"] = json.dumps(
            {
                "amqpctl": __version__,
                "url": without_secrets(options_of(context).address()),
                "created": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                "missing": missing,
                "removed": f"values of secrets read {HIDDEN}",
            },
            indent=1,
        )
        _write_archive(file, contents)
        for name, reason in missing.items():
            typer.echo(f"amqpctl: '{name}' is missing in {file}: {reason}", err=True)
        if len(missing) == len(PARTS):
            raise end_command(f"{file} has metrics only", REFUSED)
        typer.echo(f"{file}: {len(contents)} files; read them before you pass the archive on")


def _write_archive(path: str, contents: Mapping[str, str]) -> None:
    """Write a compressed archive that only its owner may read. Raises OSError."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    with open(descriptor, "wb") as stream, tarfile.open(fileobj=stream, mode="w:gz") as archive:
        for name, text in contents.items():
            content = text.encode()
            entry = tarfile.TarInfo(f"amqpd-report/{name}")
            entry.size, entry.mode, entry.mtime = len(content), 0o600, int(time.time())
            archive.addfile(entry, io.BytesIO(content))


COMMANDS: Final = (
    status,
    top,
    ping,
    await_startup,
    version,
    server_version,
    environment,
    set_log_level,
    set_vm_memory_high_watermark,
    set_disk_free_limit,
    report,
    diagnose,
    shutdown,
    suspend_listeners,
    resume_listeners,
)
