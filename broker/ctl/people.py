"""Users and their permissions."""

from typing import Annotated, Final

import typer

from broker.ctl.output import show
from broker.ctl.session import VirtualHost, new_password, open_session

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
Expression = Annotated[str, typer.Argument(metavar="REGEX", help="Regular expression over names.")]


def list_users(context: typer.Context) -> None:
    """List users and their tags."""
    with open_session(context) as session:
        show(session.client.get("users"), ("name", "tags"), session.form)


def add_user(
    context: typer.Context,
    user: User,
    tags: Annotated[
        str, typer.Option(metavar="TAG,...", help="Tags of the user, such as administrator.")
    ] = "",
) -> None:
    """Add a user; the command prompts for the password, or reads it from standard input."""
    with open_session(context) as session:
        if any(known["name"] == user for known in session.client.get("users", columns="name")):
            typer.echo(f"amqpctl: user '{user}' exists already", err=True)
            raise typer.Exit(1)
        password = new_password(f"Password of {user}")
        session.client.put("users", user, body={"password": password, "tags": tags})


def change_password(context: typer.Context, user: User) -> None:
    """Change the password of a user; the command prompts for it, or reads it from standard input."""
    with open_session(context) as session:
        tags = session.client.get("users", user)["tags"]
        password = new_password(f"New password of {user}")
        session.client.put("users", user, body={"password": password, "tags": tags})


def delete_user(context: typer.Context, user: User) -> None:
    """Delete a user with all permissions, and close the user's connections."""
    with open_session(context) as session:
        session.client.delete("users", user)


def set_user_tags(
    context: typer.Context,
    user: User,
    tags: Annotated[list[str] | None, typer.Argument(help="New tags of the user.")] = None,
) -> None:
    """Replace the tags of a user; without TAGS the user has no tags."""
    with open_session(context) as session:
        session.client.get("users", user)  # PUT would create a missing user
        session.client.put("users", user, body={"tags": tags or []})


def list_permissions(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """List the permissions of all users in a virtual host."""
    with open_session(context) as session:
        rows = session.client.get("vhosts", vhost, "permissions")
        show(rows, ("user", "configure", "write", "read"), session.form)


def set_permissions(
    context: typer.Context,
    user: User,
    configure: Expression,
    write: Expression,
    read: Expression,
    vhost: VirtualHost = "/",
) -> None:
    """Set the permissions of a user in a virtual host: three regular expressions over names."""
    body = {"configure": configure, "write": write, "read": read}
    with open_session(context) as session:
        session.client.put("permissions", vhost, user, body=body)


def clear_permissions(context: typer.Context, user: User, vhost: VirtualHost = "/") -> None:
    """Delete the permissions of a user in a virtual host, so that the user can no longer open it."""
    with open_session(context) as session:
        session.client.delete("permissions", vhost, user)


def list_topic_permissions(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """List the topic permissions of all users in a virtual host."""
    with open_session(context) as session:
        rows = session.client.get("vhosts", vhost, "topic-permissions")
        show(rows, ("user", "exchange", "write", "read"), session.form)


def set_topic_permissions(
    context: typer.Context,
    user: User,
    exchange: Annotated[str, typer.Argument(help="Name of the topic exchange.")],
    write: Expression,
    read: Expression,
    vhost: VirtualHost = "/",
) -> None:
    """Set the regular expressions for the routing keys of a user at a topic exchange."""
    body = {"exchange": exchange, "write": write, "read": read}
    with open_session(context) as session:
        session.client.put("topic-permissions", vhost, user, body=body)


def clear_topic_permissions(context: typer.Context, user: User, vhost: VirtualHost = "/") -> None:
    """Delete the topic permissions of a user, so that the user may use all routing keys."""
    with open_session(context) as session:
        session.client.delete("topic-permissions", vhost, user)


COMMANDS: Final = (
    list_users,
    add_user,
    change_password,
    delete_user,
    set_user_tags,
    list_permissions,
    set_permissions,
    clear_permissions,
    list_topic_permissions,
    set_topic_permissions,
    clear_topic_permissions,
)
