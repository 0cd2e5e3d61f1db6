"""Shovels and links of federation; parameters of virtual hosts define them."""

from typing import Annotated, Final

import typer

from broker.ctl.session import VirtualHost, open_session

ShovelName = Annotated[str, typer.Argument(metavar="SHOVEL", help="Name of the shovel.")]
LinkId = Annotated[str, typer.Argument(metavar="ID", help="Id of the link, as federation_status shows it.")]
OnlyDown = Annotated[bool, typer.Option("--only-down", help="List only links whose last attempt has failed.")]

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


def shovel_status(context: typer.Context) -> None:
    """List the shovels of all virtual hosts with their states and counts."""
    with open_session(context) as session:
        rows = session.client.get("shovels")
        session.output.show([{"reason": "", **row} for row in rows], SHOVELS)


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
        session.output.show([{"error": "", **row} for row in rows], LINKS)


def restart_federation_link(context: typer.Context, link: LinkId, vhost: VirtualHost = "/") -> None:
    """Close the connections of a link, and connect again at once."""
    with open_session(context) as session:
        node = session.client.get("overview")["node"]
        session.client.delete("federation-links", "vhost", vhost, link, node, "restart")


COMMANDS: Final = (
    shovel_status,
    delete_shovel,
    restart_shovel,
    pause_shovel,
    resume_shovel,
    federation_status,
    restart_federation_link,
)
