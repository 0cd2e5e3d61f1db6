"""The arguments of partitioned queues."""

from __future__ import annotations

from typing import Final

from broker.core.arguments.rule import ArgumentRule

PARTITION_BY: Final = "x-partition-by"
PARTITION_MEMBERS: Final = "x-partition-members"
PARTITION_PINS: Final = "x-partition-pins"
BY_SELECTOR: Final = "selector"  # the value of x-partition-by with which members have selectors,
BY_PROPERTY: Final = "property:"  # and the beginning of the value that names a property
MEMBERS_MAX: Final = 256
WEIGHT_MAX: Final = 1_000_000
PINS_MAX: Final = 10_000
PARTITIONED_ARGUMENTS: Final = {
    PARTITION_BY: ArgumentRule(
        "header",
        description="Key by which a partitioned queue chooses the member of a message: the name of a "
        "header, or `property:` and the name of a property. With `selector` each member has a selector, and "
        "the first member whose selector accepts the message gets it.",
    ),
    PARTITION_MEMBERS: ArgumentRule(
        "members",
        1,
        MEMBERS_MAX,
        description="Members of a partitioned queue: names of existing queues of the same virtual host, or "
        "URIs of queues in other brokers, as for `x-remote`. A table has the name or URI as `to`, the share "
        "of the keys as `weight` (1 by default) or the condition as `selector`. A redeclaration does not "
        "change the members.",
    ),
    PARTITION_PINS: ArgumentRule(
        "pins",
        0,
        PINS_MAX,
        description="Values of the key with the member that gets their messages, whatever the weights: a "
        "table of names of members.",
    ),
}

NOT_COMPARED: Final = (PARTITION_MEMBERS, PARTITION_PINS)
"""Arguments that a redeclaration need not repeat, because operators change them."""
