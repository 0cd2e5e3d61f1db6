"""Declare a policy, and list the effective arguments with the policies that set them."""

from broker.core.policies.policy import EffectiveValue, parse_policy
from broker.core.vhosts.vhost import VirtualHost


def set_policy(
    vhost: VirtualHost,
    name: str,
    pattern: str,
    priority: int = 0,
    apply_to: str = "all",
    operator: bool = False,
    now: bool = True,
    definition: dict[str, object] | None = None,
    **keys: object,
) -> None:
    """Set a policy and apply it; underscores in `keys` mean dashes."""
    asked = (definition or {}) | {key.replace("_", "-"): value for key, value in keys.items()}
    vhost.policies.set(parse_policy(vhost.name, name, pattern, asked, priority, apply_to, operator))
    if now:
        vhost.policies.apply_all()


def effective_keys(found: dict[str, EffectiveValue]) -> dict[str, tuple[object, str, str]]:
    """Return the value, kind and policy name of each effective key."""
    return {key: (each.value, each.source.kind, each.source.name) for key, each in found.items()}
