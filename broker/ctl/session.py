"""The session of a command: its options, the broker's client, and one line for each error."""

import json
import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Annotated, Any, Final
from urllib.parse import urlsplit

import typer

from broker.ctl.client import Client, InvalidValueError, RefusedError, Tls, UnreachableError
from broker.ctl.output import Output

REFUSED: Final = 1
MEANINGLESS: Final = 2
UNREACHABLE: Final = 3
LEVELS_MAX: Final = 128
"""Objects and lists within each other that the HTTP API takes in a body."""

PASSWORD_VARIABLE: Final = "AMQPCTL_PASSWORD"  # noqa: S105  the name of the variable

VirtualHost = Annotated[str, typer.Option("--vhost", "-p", metavar="NAME", help="The virtual host.")]


@dataclass
class Options:
    """The options of a command that name the broker and the user, and the output."""

    url: str = "http://127.0.0.1:15672"
    host: str = ""
    port: int = 0
    user: str = "guest"
    tls: dict[str, Any] = field(default_factory=dict)
    output: Output = field(default_factory=Output)

    def address(self) -> str:
        """Return the URL of the HTTP API, in which `host` and `port` replace those of `url`."""
        if not (self.host or self.port):
            return self.url
        try:
            parts = urlsplit(self.url)
            host, port = self.host or parts.hostname or "", self.port or parts.port
        except ValueError:  # the client refuses the URL
            return self.url
        shown = f"[{host}]" if ":" in host else host
        return f"{parts.scheme}://{shown}{f':{port}' if port else ''}{parts.path}"

    def client(self, user: str, password: str | None) -> Client:
        """Make a client of the broker. Raises as `Client`."""
        return Client(self.address(), user, password, Tls(**self.tls))


def options_of(context: typer.Context) -> Options:
    """Return the options of a command."""
    options = context.obj
    assert isinstance(options, Options)
    return options


@dataclass(frozen=True)
class Session:
    """The broker's client and the output of one command."""

    client: Client
    options: Options

    @property
    def output(self) -> Output:
        """The output of the command."""
        return self.options.output


@contextmanager
def open_session(context: typer.Context, has_user: bool = True) -> Iterator[Session]:
    """Open the session of a command; an error ends the command with one line and its status.

    `has_user`: False for requests that need no log-in.
    """
    options = options_of(context)
    try:
        password = _own_password(options) if has_user else None
        yield Session(options.client(options.user, password), options)
    except InvalidValueError as error:
        raise end_command(str(error), MEANINGLESS) from error
    except RefusedError as error:
        raise end_command(str(error), REFUSED) from error
    except UnreachableError as error:
        raise end_command(str(error), UNREACHABLE) from error
    except UnicodeDecodeError as error:
        raise end_command("standard input is not valid UTF-8", REFUSED) from error
    except BrokenPipeError as error:  # `amqpctl tail q | head -1`
        sys.stdout = open(os.devnull, "w", encoding="utf-8")  # noqa: SIM115  the flush at the exit
        raise typer.Exit(REFUSED) from error
    except OSError as error:
        raise end_command(str(error), REFUSED) from error


def new_password(prompt: str, given: str | None = None) -> str:
    """Return a password: the given one; else a prompt at a terminal, or the first line of standard input."""
    if given is not None:
        return given
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=True))
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise end_command("a password is expected on standard input, or behind the user's name", MEANINGLESS)
    return password


def _own_password(options: Options) -> str:
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is not None:
        return password
    if options.user == "guest":
        return "guest"
    if not sys.stdin.isatty():
        raise end_command(f"set {PASSWORD_VARIABLE} to the password of user '{options.user}'", MEANINGLESS)
    return str(typer.prompt(f"Password of {options.user}", hide_input=True))


def end_command(text: str, status: int) -> typer.Exit:
    """Print the error of a command, and return the exception that ends the command with a status."""
    for line in text.splitlines():
        typer.echo(f"amqpctl: {line}", err=True)
    return typer.Exit(status)


def find_node(session: Session) -> str:
    """Return the name of the broker's node."""
    return str(session.client.get("overview")["node"])


_TOO_DEEP: Final = object()


def parse_json(text: str, name: str = "") -> Any:
    """Return the value of a JSON text, which refusals call `name`, or else by its content.

    Raises:
        typer.BadParameter: the text is not JSON, or has more levels than the broker's HTTP API takes.
    """
    try:
        value = json.loads(text)
    except ValueError as error:
        raise typer.BadParameter(f"{name or text} is not JSON: {error}") from error
    except RecursionError:  # some 900 levels
        value = _TOO_DEEP
    if value is _TOO_DEEP or _levels_of(value) > LEVELS_MAX:
        raise typer.BadParameter(f"{name or 'the JSON text'} is nested more than {LEVELS_MAX} levels deep")
    return value


def _levels_of(value: object) -> int:
    """Return how many objects and lists a JSON value has within each other at most."""
    levels = 0
    values = [value]
    while containers := [each for each in values if isinstance(each, (dict, list))]:
        levels += 1
        values = [item for each in containers for item in (each.values() if isinstance(each, dict) else each)]
    return levels


def parse_object(text: str, name: str) -> dict[str, Any]:
    """Return the JSON object of a text, which refusals call `name`. Raises typer.BadParameter."""
    value = parse_json(text, name)
    if not isinstance(value, dict):
        raise typer.BadParameter(f'{name}: not a JSON object such as {{"name": 1}}')
    return value
