"""Links of federated exchanges and queues."""

from typing import Annotated, Final

import typer

from broker.ctl.output import show
from broker.ctl.session import VirtualHost, open_session

LinkId = Annotated[str, typer.Argument(metavar="ID", help="Id of the link, as federation_status shows it.")]
OnlyDown = Annotated[bool, typer.Option("--only-down", help="List only links whose last attempt has failed.")]

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


COMMANDS: Final = (federation_status, restart_federation_link)
