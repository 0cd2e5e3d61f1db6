"""What is said of virtual hosts as the log keeps it, contents apart: limits and descriptions."""

from __future__ import annotations

from typing import Final

from broker.core.definitions import Change, number_of, text_of
from broker.core.vhost import VirtualHost

VHOST: Final = "vhost"
VHOST_LIMITS: Final = "vhost.limits"
VHOST_METADATA: Final = "vhost.metadata"


def vhost_change(name: str) -> Change:
    """A virtual host is there."""
    return {"kind": VHOST, "name": name}


def limits_change(vhost: VirtualHost) -> Change:
    """It has these limits and no others."""
    return {
        "kind": VHOST_LIMITS,
        "name": vhost.name,
        "connections_max": vhost.connections_max,
        "queues_max": vhost.queues_max,
    }


def metadata_change(vhost: VirtualHost) -> Change:
    """What its operators say of it."""
    return {
        "kind": VHOST_METADATA,
        "name": vhost.name,
        "description": vhost.description,
        "tags": list(vhost.tags),
        "default_queue_type": vhost.default_queue_type,
    }


def changes_of(vhost: VirtualHost) -> list[Change]:
    """What there is to say of a virtual host that is there."""
    changes: list[Change] = []
    if vhost.connections_max is not None or vhost.queues_max is not None:
        changes.append(limits_change(vhost))
    if vhost.description or vhost.tags or vhost.default_queue_type is not None:
        changes.append(metadata_change(vhost))
    return changes


def apply_to(vhost: VirtualHost, change: Change) -> None:
    """Apply a change of limits or metadata at recovery. Raises ValueError for a malformed one."""
    kind = text_of(change, "kind")
    if kind == VHOST_LIMITS:
        vhost.connections_max = _limit_of(change, "connections_max")
        vhost.queues_max = _limit_of(change, "queues_max")
    elif kind == VHOST_METADATA:
        tags = change.get("tags")
        if not isinstance(tags, list):
            raise ValueError(f"the tags of a vhost are a list: {change}")
        vhost.description = text_of(change, "description")
        vhost.tags = tuple(str(tag) for tag in tags)
        queue_type = change.get("default_queue_type")
        vhost.default_queue_type = queue_type if isinstance(queue_type, str) else None
    elif kind != VHOST:
        raise ValueError(f"no change of a vhost is of kind {kind!r}")


def _limit_of(change: Change, field: str) -> int | None:
    return None if change.get(field) is None else number_of(change, field)
