"""Shovels and links of federation, and the parameters of virtual hosts that define them."""

from typing import Annotated, Final

import typer

from broker.ctl.objects import parse_json
from broker.ctl.output import show
from broker.ctl.session import VirtualHost, open_session

ShovelName = Annotated[str, typer.Argument(metavar="SHOVEL", help="Name of the shovel.")]
Component = Annotated[str, typer.Argument(metavar="COMPONENT", help="Component, such as shovel.")]
ParameterName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the parameter.")]
LinkId = Annotated[str, typer.Argument(metavar="ID", help="Id of the link, as federation_status shows it.")]
OnlyDown = Annotated[bool, typer.Option("--only-down", help="List only links whose last attempt has failed.")]

PARAMETERS: Final = ("component", "name", "value")
SHOVELS: Final = ("name", "vhost", "state", "src_uri", "dest_uri", "forwarded", "unconfirmed", "reason")
LINKS: Final = (
    "id",
    "vhost",
    "type",
    "name",
    "upstream",
    "upstream_name",
    "uri",
    "status",
    "unconfirmed",
    "error",
)


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


def federation_status(context: typer.Context, only_down: OnlyDown = False) -> None:
    """List the links of federated exchanges and queues of all virtual hosts."""
    with open_session(context) as session:
        rows = session.client.get("federation-links", *(("state", "down") if only_down else ()))
        for row in rows:
            row["name"], row["upstream_name"] = row[row["type"]], row[f"upstream_{row['type']}"]
        show([{"error": "", **row} for row in rows], LINKS, session.form)


def restart_federation_link(context: typer.Context, link: LinkId, vhost: VirtualHost = "/") -> None:
    """Close the connections of a link, and connect again at once."""
    with open_session(context) as session:
        node = session.client.get("overview")["node"]
        session.client.delete("federation-links", "vhost", vhost, link, node, "restart")


COMMANDS: Final = (
    list_parameters,
    set_parameter,
    clear_parameter,
    shovel_status,
    delete_shovel,
    restart_shovel,
    pause_shovel,
    resume_shovel,
    federation_status,
    restart_federation_link,
)
