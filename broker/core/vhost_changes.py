"""What is said of virtual hosts as the log keeps it, contents apart: limits and descriptions."""

from __future__ import annotations

from typing import Final

from broker.core.arguments import queue_argument_objection
from broker.core.definitions import Change, number_of, text_of
from broker.core.errors import PreconditionFailed
from broker.core.queue_kinds import QUEUE_TYPE
from broker.core.vhost import VirtualHost

VHOST: Final = "vhost"
VHOST_LIMITS: Final = "vhost.limits"
VHOST_METADATA: Final = "vhost.metadata"


def check_queue_type(vhost: str, default_queue_type: str | None) -> None:
    """Refuse a default for the type of queues that is no type. Raises PreconditionFailed."""
    if default_queue_type is not None:
        allowed = queue_argument_objection(QUEUE_TYPE, default_queue_type)
        if allowed:
            raise PreconditionFailed(
                f"default_queue_type '{default_queue_type}' of vhost '{vhost}' is not {allowed}"
            )


def vhost_change(name: str) -> Change:
    """A virtual host is there."""
    return {"kind": VHOST, "name": name}


def limits_change(name: str, connections_max: int | None, queues_max: int | None) -> Change:
    """It has these limits and no others."""
    return {
        "kind": VHOST_LIMITS,
        "name": name,
        "connections_max": connections_max,
        "queues_max": queues_max,
    }


def metadata_change(
    name: str, description: str, tags: tuple[str, ...], default_queue_type: str | None
) -> Change:
    """What its operators say of it."""
    return {
        "kind": VHOST_METADATA,
        "name": name,
        "description": description,
        "tags": list(tags),
        "default_queue_type": default_queue_type,
    }


def changes_of(vhost: VirtualHost) -> list[Change]:
    """A virtual host is there, and what is said of it."""
    changes = [vhost_change(vhost.name)]
    if vhost.connections_max is not None or vhost.queues_max is not None:
        changes.append(limits_change(vhost.name, vhost.connections_max, vhost.queues_max))
    if vhost.description or vhost.tags or vhost.default_queue_type is not None:
        changes.append(metadata_change(vhost.name, vhost.description, vhost.tags, vhost.default_queue_type))
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
