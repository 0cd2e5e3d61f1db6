"""Users: passwords, tags, permissions, limits, log-ins."""

from typing import Annotated, Final

import typer

from broker.ctl.client import LoginRefusedError, RefusedError
from broker.ctl.session import (
    REFUSED,
    VirtualHost,
    end_command,
    find_node,
    new_password,
    open_session,
    parse_object,
)

User = Annotated[str, typer.Argument(metavar="USER", help="Name of the user.")]
GivenPassword = Annotated[
    str | None,
    typer.Argument(
        metavar="[PASSWORD]",
        help="The password, which other users of the machine may see in the list of processes.",
    ),
]
Expression = Annotated[str, typer.Argument(metavar="REGEX", help="Regular expression over names.")]


def list_users(context: typer.Context) -> None:
    """List users and their tags."""
    with open_session(context) as session:
        session.output.show(session.client.get("users"), ("name", "tags"))


def add_user(
    context: typer.Context,
    user: User,
    password: GivenPassword = None,
    tags: Annotated[
        str, typer.Option(metavar="TAG,...", help="Tags of the user, such as administrator.")
    ] = "",
) -> None:
    """Add a user. Without PASSWORD the command prompts for it, or reads it from standard input."""
    with open_session(context) as session:
        if any(known["name"] == user for known in session.client.get("users", columns="name")):
            raise end_command(
                f"user '{user}' exists already; change_password and set_user_tags change a user", REFUSED
            )
        body = {"password": new_password(f"Password of {user}", password), "tags": tags}
        session.client.put("users", user, body=body)


def change_password(context: typer.Context, user: User, password: GivenPassword = None) -> None:
    """Change a password. Without PASSWORD the command prompts for it, or reads it from standard input."""
    with open_session(context) as session:
        tags = session.client.get("users", user)["tags"]
        body = {"password": new_password(f"New password of {user}", password), "tags": tags}
        session.client.put("users", user, body=body)


def clear_password(context: typer.Context, user: User) -> None:
    """Remove the password of a user, who can then log in by a certificate only."""
    with open_session(context) as session:
        tags = session.client.get("users", user)["tags"]
        session.client.put("users", user, body={"password_hash": "", "tags": tags})


def authenticate_user(context: typer.Context, user: User, password: GivenPassword = None) -> None:
    """Check a name and password. Without PASSWORD the command prompts for it, or reads standard input."""
    with open_session(context, has_user=False) as session:
        client = session.options.client(user, new_password(f"Password of {user}", password))
        try:
            client.get("whoami")
        except LoginRefusedError as error:
            raise end_command(f"the broker refuses the password of user '{user}'", REFUSED) from error
        except RefusedError:  # the user has no tag for the HTTP API: the password was right
            pass
        typer.echo(f"user '{user}' may log in")


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
        session.output.show(rows, ("user", "configure", "write", "read"))


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


def list_user_permissions(context: typer.Context, user: User) -> None:
    """List the permissions of a user in all virtual hosts."""
    with open_session(context) as session:
        rows = session.client.get("users", user, "permissions")
        session.output.show(rows, ("vhost", "configure", "write", "read"))


def list_user_topic_permissions(context: typer.Context, user: User) -> None:
    """List the topic permissions of a user in all virtual hosts."""
    with open_session(context) as session:
        rows = session.client.get("users", user, "topic-permissions")
        session.output.show(rows, ("vhost", "exchange", "write", "read"))


def list_topic_permissions(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """List the topic permissions of all users in a virtual host."""
    with open_session(context) as session:
        rows = session.client.get("vhosts", vhost, "topic-permissions")
        session.output.show(rows, ("user", "exchange", "write", "read"))


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


def list_user_limits(
    context: typer.Context,
    user: Annotated[str, typer.Option("--user", metavar="USER", help="Only the limits of this user.")] = "",
) -> None:
    """List the limits of users."""
    with open_session(context) as session:
        rows = session.client.get("user-limits", *([user] if user else []))
        session.output.show(rows, ("user", "value"))


def set_user_limits(
    context: typer.Context,
    user: User,
    limits: Annotated[
        str,
        typer.Argument(metavar="JSON", help='Limits, such as {"max-connections": 10, "max-channels": 50}.'),
    ],
) -> None:
    """Set limits of a user: max-connections, max-channels. A negative number removes a limit."""
    with open_session(context) as session:
        for name, value in parse_object(limits, "the limits").items():
            session.client.put("user-limits", user, name, body={"value": value})


def clear_user_limits(
    context: typer.Context,
    user: User,
    limit: Annotated[str, typer.Argument(metavar="LIMIT", help="Name of the limit, or all.")] = "all",
) -> None:
    """Remove a limit of a user, or all limits."""
    with open_session(context) as session:
        names = [limit]
        if limit == "all":
            names = [name for row in session.client.get("user-limits", user) for name in row["value"]]
        for name in names:
            session.client.delete("user-limits", user, name)


def list_node_auth_attempt_stats(context: typer.Context) -> None:
    """List the numbers of log-ins by protocol since the start of the broker, or since their reset."""
    with open_session(context) as session:
        rows = session.client.get("auth", "attempts", find_node(session))
        columns = ("protocol", "auth_attempts", "auth_attempts_succeeded", "auth_attempts_failed")
        session.output.show(rows, columns)


def reset_node_auth_attempt_metrics(context: typer.Context) -> None:
    """Reset the numbers of log-ins by protocol."""
    with open_session(context) as session:
        session.client.delete("auth", "attempts", find_node(session))


COMMANDS: Final = (
    list_users,
    add_user,
    change_password,
    clear_password,
    authenticate_user,
    delete_user,
    set_user_tags,
    list_permissions,
    set_permissions,
    clear_permissions,
    list_user_permissions,
    list_user_topic_permissions,
    list_topic_permissions,
    set_topic_permissions,
    clear_topic_permissions,
    list_user_limits,
    set_user_limits,
    clear_user_limits,
    list_node_auth_attempt_stats,
    reset_node_auth_attempt_metrics,
)
