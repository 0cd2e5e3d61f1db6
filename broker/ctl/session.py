"""The context of a command: its broker, and the format of its output."""

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Final

import typer

from broker.ctl.client import Client, InvalidValueError, RefusedError, UnreachableError

REFUSED: Final = 1
MEANINGLESS: Final = 2
UNREACHABLE: Final = 3
PASSWORD_VARIABLE: Final = "AMQPCTL_PASSWORD"  # noqa: S105  the name of the variable

VirtualHost = Annotated[str, typer.Option("--vhost", "-p", metavar="NAME", help="The virtual host.")]


@dataclass(frozen=True)
class Session:
    """The broker's client and the output format of one command."""

    client: Client
    form: str


@contextmanager
def open_session(context: typer.Context) -> Iterator[Session]:
    """Open the session of a command; an error ends the command with one line and its status."""
    options = context.obj
    try:
        client = Client(
            options["url"],
            options["user"],
            _own_password(options),
            ca=options["ca"],
            certificate=options["certificate"],
        )
        yield Session(client, options["format"])
    except InvalidValueError as error:
        raise _end_command(str(error), MEANINGLESS) from error
    except RefusedError as error:
        raise _end_command(str(error), REFUSED) from error
    except UnreachableError as error:
        raise _end_command(str(error), UNREACHABLE) from error
    except UnicodeDecodeError as error:
        raise _end_command("standard input is not valid UTF-8", REFUSED) from error
    except OSError as error:
        raise _end_command(str(error), REFUSED) from error


def new_password(prompt: str) -> str:
    """Read a password: at a terminal by a prompt, otherwise from the first line of standard input."""
    if sys.stdin.isatty():
        return str(typer.prompt(prompt, hide_input=True, confirmation_prompt=True))
    password = sys.stdin.readline().rstrip("\n")
    if not password:
        raise _end_command("a password is expected on standard input", 2)
    return password


def _own_password(options: dict[str, str]) -> str:
    password = os.environ.get(PASSWORD_VARIABLE)
    if password is not None:
        return password
    if options["user"] == "guest":
        return "guest"
    if not sys.stdin.isatty():
        raise _end_command(f"set {PASSWORD_VARIABLE} to the password of user '{options['user']}'", 2)
    return str(typer.prompt(f"Password of {options['user']}", hide_input=True))


def _end_command(text: str, status: int) -> typer.Exit:
    for line in text.splitlines():
        typer.echo(f"amqpctl: {line}", err=True)
    return typer.Exit(status)
