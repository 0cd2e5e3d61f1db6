"""Policies and operator policies, effective arguments, parameters of virtual hosts and of the broker."""

from typing import Annotated, Any, Final

import typer

from broker.ctl.output import print_json
from broker.ctl.session import VirtualHost, open_session, parse_json

Operator = Annotated[bool, typer.Option("--operator", help="Operator policies instead of policies.")]
Component = Annotated[str, typer.Argument(metavar="COMPONENT", help="Component, such as shovel.")]
ParameterName = Annotated[str, typer.Argument(metavar="NAME", help="Name of the parameter.")]

POLICIES: Final = ("name", "priority", "pattern", "apply-to", "definition")
PARAMETERS: Final = ("component", "name", "value")

PolicyName = Annotated[str, typer.Argument(metavar="POLICY", help="Name of the policy.")]


def _kind(operator: bool) -> str:
    return "operator-policies" if operator else "policies"


def list_policies(context: typer.Context, vhost: VirtualHost = "/", operator: Operator = False) -> None:
    """List policies, the highest priority first."""
    with open_session(context) as session:
        rows = session.client.get(_kind(operator), vhost)
        session.output.show(sorted(rows, key=lambda row: (-row["priority"], row["name"])), POLICIES)


Pattern = Annotated[
    str, typer.Argument(metavar="REGEX", help="Regular expression over the names of queues or exchanges.")
]
Definition = Annotated[
    str, typer.Argument(metavar="JSON", help='Keys and values, such as {"max-length": 1000}.')
]
Priority = Annotated[int, typer.Option(help="Priority: the highest one wins, key by key.")]
ApplyTo = Annotated[
    str, typer.Option(help="all, queues, classic_queues, quorum_queues, streams or exchanges.")
]


def set_policy(
    context: typer.Context,
    name: PolicyName,
    pattern: Pattern,
    definition: Definition,
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
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


def list_operator_policies(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """List operator policies, the highest priority first."""
    list_policies(context, vhost, operator=True)


def set_operator_policy(
    context: typer.Context,
    name: PolicyName,
    pattern: Pattern,
    definition: Definition,
    priority: Priority = 0,
    apply_to: ApplyTo = "all",
    vhost: VirtualHost = "/",
) -> None:
    """Set an operator policy, which limits what policies and declarations ask for."""
    set_policy(context, name, pattern, definition, priority, apply_to, vhost, operator=True)


def clear_operator_policy(context: typer.Context, name: PolicyName, vhost: VirtualHost = "/") -> None:
    """Delete an operator policy."""
    clear_policy(context, name, vhost, operator=True)


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
        if session.output.is_json:
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
        session.output.show(rows, ("key", "value", "from", "over"))


def _claim(claim: dict[str, str]) -> str:
    return f"{claim['kind'].replace('_', ' ')} {claim['name']}"


def list_parameters(context: typer.Context, vhost: VirtualHost = "/") -> None:
    """List the parameters of a virtual host."""
    with open_session(context) as session:
        rows = [row for row in session.client.get("parameters") if row["vhost"] == vhost]
        session.output.show(rows, PARAMETERS)


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


def list_global_parameters(context: typer.Context) -> None:
    """List the global parameters of the broker."""
    with open_session(context) as session:
        session.output.show(session.client.get("global-parameters"), ("name", "value"))


def set_global_parameter(
    context: typer.Context,
    name: ParameterName,
    value: Annotated[str, typer.Argument(metavar="JSON", help="Value of the parameter.")],
) -> None:
    """Set a global parameter of the broker, such as cluster_name."""
    body = {"value": parse_json(value, "the value")}
    with open_session(context) as session:
        session.client.put("global-parameters", name, body=body)


def clear_global_parameter(context: typer.Context, name: ParameterName) -> None:
    """Delete a global parameter of the broker."""
    with open_session(context) as session:
        session.client.delete("global-parameters", name)


COMMANDS: Final = (
    list_policies,
    set_policy,
    clear_policy,
    list_operator_policies,
    set_operator_policy,
    clear_operator_policy,
    explain,
    list_parameters,
    set_parameter,
    clear_parameter,
    list_global_parameters,
    set_global_parameter,
    clear_global_parameter,
)
