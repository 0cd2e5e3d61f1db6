"""The command line of `amqpctl`. Commands have rabbitmqctl's names where it has them."""

import inspect
from collections.abc import Callable, Mapping
from copy import copy
from typing import Annotated, Any, Final

import typer

from broker import __version__
from broker.ctl import (
    dispatchers,
    forwarding,
    listing,
    messages,
    node,
    objects,
    people,
    policies,
)
from broker.ctl.output import Form
from broker.ctl.session import Options, options_of

MODULES: Final = (node, listing, people, policies, objects, messages, forwarding, dispatchers)
"""The modules with the commands, in the order of the help."""

BEHIND: Final = "behind_"
"""The prefix of parameters that take the options of amqpctl behind the name of a command."""

Url = Annotated[
    str | None,
    typer.Option("--url", envvar="AMQPCTL_URL", metavar="URL", help="Address of the broker's HTTP API."),
]
Host = Annotated[
    str | None,
    typer.Option("--host", metavar="HOST", help="Host of the broker, instead of the one in --url."),
]
Port = Annotated[
    int | None,
    typer.Option(
        "--port", min=1, max=65535, metavar="PORT", help="Port of the HTTP API, instead of the one in --url."
    ),
]
User = Annotated[
    str | None,
    typer.Option("--user", "-u", envvar="AMQPCTL_USER", metavar="NAME", help="User who sends the requests."),
]
Ca = Annotated[
    str | None,
    typer.Option(
        "--ca",
        envvar="AMQPCTL_CA",
        metavar="FILE",
        help="File with the authorities (PEM) of the broker's certificate.",
    ),
]
Certificate = Annotated[
    str | None,
    typer.Option(
        "--cert",
        "--certificate",
        envvar="AMQPCTL_CERTIFICATE",
        metavar="FILE",
        help="File with the client's certificate (PEM), and its key unless --key names another file.",
    ),
]
Key = Annotated[
    str | None,
    typer.Option("--key", envvar="AMQPCTL_KEY", metavar="FILE", help="File with the client's key (PEM)."),
]
Insecure = Annotated[
    bool | None,
    typer.Option("--insecure", help="Do not check the broker's certificate. Anybody may then answer."),
]
Format = Annotated[Form | None, typer.Option("--format", "--formatter", help="Format of lists.")]
NoHeaders = Annotated[
    bool | None,
    typer.Option("--no-table-headers", "--silent", "-s", help="Print no names of columns."),
]
Quiet = Annotated[
    bool | None,
    typer.Option("--quiet", "-q", help="Accepted for rabbitmqctl's scripts: amqpctl adds no comments."),
]

COMMON: Final[dict[str, Any]] = {
    "url": Url,
    "host": Host,
    "port": Port,
    "user": User,
    "ca": Ca,
    "certificate": Certificate,
    "key": Key,
    "insecure": Insecure,
    "form": Format,
    "no_headers": NoHeaders,
    "quiet": Quiet,
}
"""The options that go before or behind the name of a command."""

SHOWN_BEHIND: Final = frozenset({"form"})
"""The options of amqpctl that the help of each command shows."""


Version = Annotated[
    bool | None,
    typer.Option(
        "--version", callback=lambda wanted: _show_version(wanted), is_eager=True, help="Show the version."
    ),
]


def control_line() -> typer.Typer:
    """Make the commands."""
    app = typer.Typer(
        no_args_is_help=True,
        pretty_exceptions_enable=False,  # tracebacks would show local variables, secrets among them
    )
    app.callback()(_add_parameters(_options, _begin, {**COMMON, "version": Version}))
    for module in MODULES:
        for command in module.COMMANDS:
            app.command(command.__name__)(_with_common_options(command))
    return app


def _with_common_options(command: Callable[..., None]) -> Callable[..., None]:
    """Make a command that takes the options of amqpctl behind its name too."""
    own = {flag for annotation in command.__annotations__.values() for flag in _flags(annotation)}
    names = [name for name in COMMON if own.isdisjoint(_flags(COMMON[name]))]

    def run(context: typer.Context, **given: Any) -> None:
        _apply(options_of(context), {name: given.pop(BEHIND + name) for name in names})
        command(context, **given)

    return _add_parameters(command, run, {BEHIND + name: _behind(name) for name in names})


def _add_parameters(
    command: Callable[..., None], run: Callable[..., None], added: Mapping[str, Any]
) -> Callable[..., None]:
    """Give `run` the name, the description and the parameters of `command`, and the added parameters."""
    signature = inspect.signature(command)
    parameters = [
        inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=None, annotation=annotation)
        for name, annotation in added.items()
    ]
    run.__signature__ = signature.replace(  # type: ignore[attr-defined]
        parameters=[*signature.parameters.values(), *parameters]
    )
    run.__annotations__ = {**command.__annotations__, **added}
    run.__name__, run.__doc__ = command.__name__, command.__doc__
    return run


def _flags(annotation: Any) -> set[str]:
    """Return the flags of the annotation of an option; typer keeps the first flag in place of a default."""
    return {
        flag
        for each in getattr(annotation, "__metadata__", ())
        for flag in (each.default, *(getattr(each, "param_decls", None) or ()))
        if isinstance(flag, str) and flag.startswith("-")
    }


def _behind(name: str) -> Any:
    """Return the annotation of an option of amqpctl for the place behind the name of a command.

    The environment counts for the place before the name only: it must not override an option there.
    """
    option = copy(COMMON[name].__metadata__[0])
    option.envvar = None
    option.hidden = name not in SHOWN_BEHIND
    return Annotated[COMMON[name].__origin__, option]


def _apply(options: Options, given: Mapping[str, Any]) -> None:
    """Set the options that are given."""
    given = {name: value for name, value in given.items() if value is not None}
    if "url" in given:
        options.host, options.port = "", 0  # the later option counts
    for name in ("url", "host", "port", "user"):
        if name in given:
            setattr(options, name, given[name])
    options.tls |= {name: given[name] for name in ("ca", "certificate", "key", "insecure") if name in given}
    options.output.form = given.get("form", options.output.form)
    options.output.headers = options.output.headers and not given.get("no_headers", False)


def _options(context: typer.Context) -> None:
    """Administer a running amqpd.

    The variable AMQPCTL_PASSWORD has the password; without it the command prompts for the password. Exit
    status: 1 if the broker refuses, 2 for wrong usage, 3 if the broker cannot be reached.
    """


def _begin(context: typer.Context, **given: Any) -> None:
    """Keep the options of amqpctl for the command."""
    context.obj = Options()
    _apply(context.obj, given)


def _show_version(is_wanted: bool | None) -> None:
    if is_wanted:
        typer.echo(f"amqpctl {__version__}")
        raise typer.Exit
