"""Policies, and effective arguments."""

from typing import Annotated, Any, Final

import typer

from broker.ctl.objects import parse_json
from broker.ctl.output import print_json, show
from broker.ctl.session import VirtualHost, open_session

Operator = Annotated[bool, typer.Option("--operator", help="Operator policies instead of policies.")]
PolicyName = Annotated[str, typer.Argument(metavar="POLICY", help="Name of the policy.")]


def _kind(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


def list_policies(context: typer.Context, vhost: VirtualHost = "/", operator: Operator = False) -> None:
    """List policies, the highest priority first."""
    columns = ("name", "priority", "pattern", "apply-to", "definition")
    with open_session(context) as session:
        rows = session.client.get(_kind(operator), vhost)
        show(sorted(rows, key=lambda row: (-row["priority"], row["name"])), columns, session.form)


def set_policy(
    context: typer.Context,
    name: PolicyName,
    pattern: Annotated[
        str, typer.Argument(metavar="REGEX", help="Regular expression over the names of queues or exchanges.")
    ],
    definition: Annotated[
        str, typer.Argument(metavar="JSON", help='Keys and values, such as {"max-length": 1000}.')
    ],
    priority: Annotated[int, typer.Option(help="Priority: the highest one wins, key by key.")] = 0,
    apply_to: Annotated[
        str, typer.Option(help="all, queues, classic_queues, quorum_queues, streams or exchanges.")
    ] = "all",
    vhost: VirtualHost = "/",
    operator: Operator = False,
) -> None:
    """Set a policy, and wait until the policy holds for everything that it matches."""
    body = {
        "pattern": pattern,
        "definition": parse_json(definition, "the definition"),
        "priority": priority,
        "apply-to": apply_to,
    }
    with open_session(context) as session:
        session.client.put(_kind(operator), vhost, name, body=body)


def clear_policy(
    context: typer.Context, name: PolicyName, vhost: VirtualHost = "/", operator: Operator = False
) -> None:
    """Delete a policy."""
    with open_session(context) as session:
        session.client.delete(_kind(operator), vhost, name)


def explain(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name of the queue or exchange.")],
    exchange: Annotated[
        bool, typer.Option("--exchange", help="Explain an exchange instead of a queue.")
    ] = False,
    vhost: VirtualHost = "/",
) -> None:
    """Show the effective arguments of a queue: each value, its origin, and the values that it overrides."""
    with open_session(context) as session:
        kind = "exchanges" if exchange else "queues"
        effective: dict[str, Any] = session.client.get(kind, vhost, name, "effective")
        if session.form == "json":
            print_json(effective)
            return
        rows = [
            {
                "key": key + (" (no effect)" if each.get("no_effect") else ""),
                "value": each["value"],
                "from": _claim(each["source"]),
                "over": ", ".join(f"{_claim(other)} ({other['value']})" for other in each["overrides"]),
            }
            for key, each in effective.items()
        ]
        show(rows, ("key", "value", "from", "over"), session.form)


def _claim(claim: dict[str, str]) -> str:
    return f"{claim['kind'].replace('_', ' ')} {claim['name']}"


COMMANDS: Final = (list_policies, set_policy, clear_policy, explain)
