"""The command line: serve, check, check-config, definitions, bench, journal, pipeline, version."""

import inspect
import json
import os
import platform
import sys
import tempfile
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Any, Final

import typer

from broker import __version__
from broker.progress import show_progress
from config.loader import CONFIG, LoadedSettings, SettingsError, flag, load, variable
from config.running import HIDDEN, plain_value
from config.settings import Settings

Command = Callable[..., None]

LISTS: Final = (
    "listen",
    "tls_listen",
    "websocket_listen",
    "websocket_tls_listen",
    "websocket_origins",
    "admin_tls_listen",
    "admin_origins",
    "sasl_mechanisms",
    "auto_create",
    "dispatch_allow",
)
METAVARS: Final = {
    "listen": "HOST:PORT",
    "tls_listen": "HOST:PORT",
    "websocket_listen": "HOST:PORT",
    "websocket_tls_listen": "HOST:PORT",
    "websocket_origins": "ORIGIN",
    "admin_origins": "ORIGIN",
    "admin": "HOST:PORT",
    "auto_create": "PATTERN",
    "dispatch_allow": "TARGET",
    "tls_certificate": "FILE",
    "tls_key": "FILE",
    "tls_ca": "FILE",
    "admin_tls_listen": "HOST:PORT",
    "admin_tls_certificate": "FILE",
    "admin_tls_key": "FILE",
    "admin_tls_ca": "FILE",
    CONFIG: "FILE",
}


def command_line(arguments: Sequence[str]) -> typer.Typer:
    """Make the command that `arguments` name, or all commands if they name none, as for --help.

    Importing the modules of the other commands would slow down the start.
    """
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # tracebacks would show local variables, secrets among them
    )
    app.callback(invoke_without_command=True)(_commands)
    named = arguments[0] if arguments else ""
    for name in [named] if named in COMMANDS else COMMANDS:
        COMMANDS[name](app, name)
    return app


def _add_bench(app: typer.Typer, name: str) -> None:
    from broker.bench.command import bench

    app.command(name)(bench)


def _add_journal(app: typer.Typer, name: str) -> None:
    from broker.journal.command import app as journal

    app.add_typer(journal, name=name)


def _add_pipeline(app: typer.Typer, name: str) -> None:
    foreign = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}
    app.command(name, context_settings=foreign)(pipeline)


def _commands(
    show_version: Annotated[bool, typer.Option("--version", help="Show the version and exit.")] = False,
) -> None:
    """amqpd, a message broker that speaks AMQP 0-9-1 and AMQP 1.0."""
    if show_version:
        version()
        raise typer.Exit


def settings_flags(command: Callable[[dict[str, object]], None]) -> Command:
    """Give `command`, which takes the flags by setting name, one option for every setting and `--config`."""

    def run(**flags: object) -> None:
        command(flags)

    options = {CONFIG: _option(str, CONFIG, "Settings file (TOML); config/amqpd.toml documents every key.")}
    for name, field in Settings.model_fields.items():
        kind = list[str] if name in LISTS else str
        options[name] = _option(kind, name, field.description or "")
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in options.items()
    ]
    run.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    run.__annotations__ = dict(options)
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _option(kind: Any, name: str, help_text: str) -> Any:
    metavar = METAVARS.get(name, "VALUE")
    shown = f"{help_text} ({variable(name)})"
    return Annotated[kind | None, typer.Option(flag(name), metavar=metavar, help=shown)]


@settings_flags
def serve(flags: dict[str, object]) -> None:
    """Run the broker until SIGTERM or SIGINT."""
    loaded = _load(flags)
    from broker.daemon import run

    raise typer.Exit(run(loaded))


def check(
    data_dir: Annotated[
        str | None, typer.Option(metavar="FOLDER", help="Folder of the log. (AMQPD_DATA_DIR)")
    ] = None,
    config: Annotated[str | None, typer.Option(metavar="FILE", help="Settings file. (AMQPD_CONFIG)")] = None,
    repair: Annotated[
        bool, typer.Option("--repair", help="Give up damaged parts, so that serve can start.")
    ] = False,
) -> None:
    """Check the log of a stopped broker, and show its contents and its damage.

    Exit status: 0 if nothing is damaged or all is repaired, 1 if there is damage, 2 if the log cannot be
    read.
    """
    from broker.offline import unusable_expressions
    from broker.store.disk import RealDisk
    from broker.store.errors import StoreError
    from broker.store.repair import check as log_check
    from broker.store.segment import SUFFIX

    folder = _load({"data_dir": data_dir, CONFIG: config}).settings.data_dir
    try:
        if not any(folder.glob(f"*{SUFFIX}")):
            raise StoreError(f"no log in {folder}")  # before the check creates files in the folder
        work = log_check.repair if repair else log_check.check
        with show_progress("repair" if repair else "check") as advance:
            report = work(str(folder), RealDisk(), advance)
    except (StoreError, OSError) as error:
        typer.echo(f"amqpd: {error}", err=True)
        raise typer.Exit(2) from error
    for line in report.lines():
        typer.echo(line)
    for reason in unusable_expressions(report.changes):
        typer.echo(f"matches nothing: {reason}")
    if not (report.healthy or report.repaired):
        raise typer.Exit(1)


def _definitions_commands() -> typer.Typer:
    commands = typer.Typer(
        no_args_is_help=True, help="Export or import the definitions of a stopped broker, as RabbitMQ's JSON."
    )
    commands.command("export")(export_definitions)
    commands.command("import")(import_definitions)
    commands.command("check")(check_definitions)
    return commands


DataDir = Annotated[str | None, typer.Option(metavar="FOLDER", help="Folder of the log. (AMQPD_DATA_DIR)")]
ConfigFile = Annotated[str | None, typer.Option(metavar="FILE", help="Settings file. (AMQPD_CONFIG)")]
VirtualHostOnly = Annotated[
    str | None, typer.Option(metavar="NAME", help="Only the definitions of this virtual host.")
]


def export_definitions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to write; - is standard output.")] = "-",
    vhost: VirtualHostOnly = None,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Write the definitions of a stopped broker, that is everything but messages, to a file.

    The command only reads the log. Exit status: 2 if the log cannot be read.
    """
    from broker import offline

    folder = _load({"data_dir": data_dir, CONFIG: config}).settings.data_dir
    with _errors_in_one_line():
        if file == "-":
            sys.stdout.writelines(offline.export_definitions(folder, vhost))
        else:
            with show_progress("export"):
                _write_private(Path(file), offline.export_definitions(folder, vhost))


def _write_private(path: Path, pieces: Iterable[str]) -> None:
    """Write a file that only its owner may read, as it has password hashes; the whole file or nothing.

    A file that is not regular (a pipe, a device) is written directly. Raises OSError.
    """
    if path.exists() and not path.is_file():
        with path.open("w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        return
    path = path.resolve()  # a symbolic link stays a link
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)  # with mode 0600
    try:
        with open(descriptor, "w", encoding="utf-8") as stream:
            stream.writelines(pieces)
        os.replace(name, path)
    except BaseException:
        os.unlink(name)
        raise


def import_definitions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is standard input.")],
    vhost: VirtualHostOnly = None,
    skip_unsupported: Annotated[
        bool, typer.Option("--skip-unsupported", help="Pass over what amqpd does not have, and list it.")
    ] = False,
    data_dir: DataDir = None,
    config: ConfigFile = None,
) -> None:
    """Import definitions into the log of a stopped broker: all of them, or none and a line for each error.

    Present objects of the same description stay; a present object of another description is an error.
    Exit status: 2 if nothing was imported.
    """
    from broker import offline

    folder = _load({"data_dir": data_dir, CONFIG: config}).settings.data_dir
    with _errors_in_one_line():
        content, name = _read_definitions(file)
        with show_progress("import"):
            lines = offline.import_definitions(folder, content, vhost, name, skip_unsupported)
        for line in lines:
            typer.echo(f"passed over: {line}", err=True)


def check_definitions(
    file: Annotated[str, typer.Argument(metavar="FILE", help="File to read; - is standard input.")],
) -> None:
    """Try definitions, such as an export of RabbitMQ, on an empty broker in memory, and list what it lacks.

    Exit status: 0 if the broker has everything, 1 if --skip-unsupported is needed, 2 if something is wrong.
    """
    from broker import offline

    with _errors_in_one_line():
        content, name = _read_definitions(file)
        with show_progress("check"):
            lines = offline.check_definitions(content, name)
    for line in lines:
        typer.echo(f"not supported: {line}")
    if lines:
        raise typer.Exit(1)
    typer.echo("all definitions are supported")


def _read_definitions(file: str) -> tuple[bytes, str]:
    """Return the content of a file, and its name for errors."""
    if file == "-":
        return sys.stdin.buffer.read(), "standard input"
    return Path(file).read_bytes(), file


@contextmanager
def _errors_in_one_line() -> Iterator[None]:
    """End with one line for each error and status 2 instead of a traceback."""
    from broker.core.errors import BrokerError
    from broker.offline import OfflineError
    from broker.store.errors import StoreError

    try:
        yield
    except (OfflineError, StoreError, BrokerError, OSError) as error:
        for line in str(error).splitlines():
            typer.echo(f"amqpd: {line}", err=True)
        raise typer.Exit(2) from error


@settings_flags
def check_config(flags: dict[str, object]) -> None:
    """Show the settings that `serve` would use, and the place that sets each one."""
    loaded = _load(flags)
    shown = {name: _show_setting(name, loaded.settings) for name in Settings.model_fields}
    width = max(len(f"{name} = {value}") for name, value in shown.items())
    for name, value in shown.items():
        typer.echo(f"{f'{name} = {value}':<{width}}  # {loaded.sources[name]}")


def pipeline(context: typer.Context) -> None:
    """Run jobs on Spark over journals and messages; needs the extra `pipeline`."""
    if find_spec("pipeline") is None:
        typer.echo("amqpd: the package 'pipeline' is not installed: pip install 'amqpd[pipeline]'", err=True)
        raise typer.Exit(1)
    sys.stdout.flush()
    os.execv(sys.executable, [sys.executable, "-m", "pipeline", *context.args])  # noqa: S606


def version() -> None:
    """Show the version, and whether the hot path is compiled."""
    from broker.flavour import flavour

    typer.echo(f"amqpd {__version__} ({flavour()}), Python {platform.python_version()}")


def _load(flags: dict[str, object]) -> LoadedSettings:
    """Load the settings. For wrong settings, print a line for each fault and end with status 2."""
    try:
        return load(flags, os.environ)
    except SettingsError as error:
        for line in str(error).splitlines():
            typer.echo(f"amqpd: {line}", err=True)
        raise typer.Exit(2) from error


def _show_setting(name: str, settings: Settings) -> str:
    value = plain_value(name, settings)
    if value == HIDDEN:
        return HIDDEN
    if isinstance(value, list):
        return "[" + ", ".join(_quote_text(item) for item in value) + "]"
    if isinstance(value, bool):
        return str(value).lower()
    return str(value) if isinstance(value, int) else _quote_text(str(value))


def _quote_text(text: str) -> str:
    """Return a text as a TOML string."""
    return json.dumps(text, ensure_ascii=False).replace("\x7f", "\\u007f")


def _make_adder(command: Command) -> Callable[[typer.Typer, str], None]:
    def add(app: typer.Typer, name: str) -> None:
        app.command(name)(command)

    return add


COMMANDS: Final[dict[str, Callable[[typer.Typer, str], None]]] = {
    "serve": _make_adder(serve),
    "check": _make_adder(check),
    "check-config": _make_adder(check_config),
    "definitions": lambda app, name: app.add_typer(_definitions_commands(), name=name),
    "bench": _add_bench,
    "journal": _add_journal,
    "pipeline": _add_pipeline,
    "version": _make_adder(version),
}
"""The name of each command, in the order of --help, and the function that adds the command."""
