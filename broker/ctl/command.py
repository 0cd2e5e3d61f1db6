"""The command line of `amqpctl`. Commands have rabbitmqctl's names where it has them."""

from enum import StrEnum
from typing import Annotated

import typer

from broker.ctl import (
    delayed,
    dispatchers,
    forwarding,
    listing,
    messages,
    objects,
    people,
    policies,
)

MODULES = (listing, people, policies, objects, messages, delayed, forwarding, dispatchers)
"""The modules with the commands, in the order of the help."""


class Form(StrEnum):
    """The format of lists."""

    TABLE = "table"
    JSON = "json"


def control_line() -> typer.Typer:
    """Make the commands."""
    app = typer.Typer(
        no_args_is_help=True,
        add_completion=False,
        pretty_exceptions_enable=False,  # tracebacks would show local variables, secrets among them
    )
    app.callback()(_options)
    for module in MODULES:
        for command in module.COMMANDS:
            app.command(command.__name__)(command)
    return app


def _options(
    context: typer.Context,
    url: Annotated[
        str, typer.Option(envvar="AMQPCTL_URL", metavar="URL", help="Address of the broker's HTTP API.")
    ] = "http://127.0.0.1:15672",
    user: Annotated[
        str,
        typer.Option(
            "--user", "-u", envvar="AMQPCTL_USER", metavar="NAME", help="User who sends the requests."
        ),
    ] = "guest",
    ca: Annotated[
        str,
        typer.Option(
            envvar="AMQPCTL_CA",
            metavar="FILE",
            help="File with the authorities (PEM) of the broker's certificate.",
        ),
    ] = "",
    certificate: Annotated[
        str,
        typer.Option(
            envvar="AMQPCTL_CERTIFICATE",
            metavar="FILE",
            help="File with the client's certificate and key (PEM).",
        ),
    ] = "",
    form: Annotated[Form, typer.Option("--format", help="Form of lists.")] = Form.TABLE,
) -> None:
    """Administer a running amqpd.

    The variable AMQPCTL_PASSWORD has the password; without it the command prompts for the password. Exit
    status: 1 if the broker refuses, 2 for wrong usage, 3 if the broker cannot be reached.
    """
    context.obj = {
        "url": url,
        "user": user,
        "ca": ca,
        "certificate": certificate,
        "format": form.value,
    }
