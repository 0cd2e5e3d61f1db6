"""Shovels, and the parameters of virtual hosts that define them."""

from typing import Annotated, Final

import typer

from broker.ctl.objects import parse_json
from broker.ctl.output import show
from broker.ctl.session import VirtualHost, open_session

ShovelName = Annotated[str, typer.Argument(metavar="SHOVEL", help="Name of the shovel.")]
Component = Annotated[str, typer.Argument(metavar="COMPONENT", help="Component, such as shovel.")]
ParameterName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the parameter.")]

PARAMETERS: Final = ("component", "name", "value")
SHOVELS: Final = ("name", "vhost", "state", "src_uri", "dest_uri", "forwarded", "unconfirmed", "reason")


def list_parameters(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """List the parameters of a virtual host."""
    with open_session(context) as session:
        rows = [row for row in session.client.get("parameters") if row["vhost"] == vhost]
        show(rows, PARAMETERS, session.form)


def set_parameter(
    context: typer.Context,
    component: Component,
    name: ParameterName,
    value: Annotated[str, typer.Argument(metavar="JSON", help="Value of the parameter.")],
    vhost: VirtualHost = "/",
) -> None:
    """Set a parameter: a shovel, which starts at once, or an upstream of federation."""
    body = {"value": parse_json(value, "the value")}
    with open_session(context) as session:
        session.client.put("parameters", component, vhost, name, body=body)


def clear_parameter(
    context: typer.Context, component: Component, name: ParameterName, vhost: VirtualHost = "/"
) -> None:
    """Delete a parameter."""
    with open_session(context) as session:
        session.client.delete("parameters", component, vhost, name)


def shovel_status(context: typer.Context) -> None:
    """List the shovels of all virtual hosts with their states and counts."""
    with open_session(context) as session:
        rows = session.client.get("shovels")
        show([{"reason": "", **row} for row in rows], SHOVELS, session.form)


def delete_shovel(context: typer.Context, name: ShovelName, vhost: VirtualHost = "/") -> None:
    """Delete a shovel; messages that are not forwarded stay in its source."""
    with open_session(context) as session:
        session.client.delete("shovels", "vhost", vhost, name)


def restart_shovel(context: typer.Context, name: ShovelName, vhost: VirtualHost = "/") -> None:
    """Close the connections of a shovel, and connect again at once."""
    with open_session(context) as session:
        session.client.delete("shovels", "vhost", vhost, name, "restart")


def pause_shovel(context: typer.Context, name: ShovelName, vhost: VirtualHost = "/") -> None:
    """Pause a shovel, also over restarts of the broker."""
    with open_session(context) as session:
        session.client.post("shovels", "vhost", vhost, name, "pause", body={})


def resume_shovel(context: typer.Context, name: ShovelName, vhost: VirtualHost = "/") -> None:
    """Resume a shovel that was paused."""
    with open_session(context) as session:
        session.client.post("shovels", "vhost", vhost, name, "resume", body={})


COMMANDS: Final = (
    list_parameters,
    set_parameter,
    clear_parameter,
    shovel_status,
    delete_shovel,
    restart_shovel,
    pause_shovel,
    resume_shovel,
)
