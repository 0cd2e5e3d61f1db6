"""What takes the level `full`, and of which queues the journal has less."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any, Final

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F  # noqa: N812

from pipeline.jobs.facts import activity, facts, known_queues

NEEDS_FULL: Final = (
    *("delivered_after_settle", "delivered_to_two", "settled_by_another", "settled_undelivered"),
    *("stuck_unacked", "undelivered", "reordered"),
)
NAMED: Final = 3


def lacks(queues: DataFrame) -> str:
    """Which queues of one node the journal has not all deliveries of; `queues`: of `known_queues`."""
    (row,) = queues.agg(*less()).collect()
    return lacks_of(row.asDict())


def less() -> tuple[Column, Column]:
    """Of `known_queues`: how many have less, and some of their names."""
    name = F.coalesce("queue", F.concat(F.lit("number "), F.col("queue_id")))
    names = F.sort_array(F.collect_set(F.when(F.col("less"), name)))
    return F.size(names).alias("total"), F.slice(names, 1, NAMED).alias("some")


def lacks_of(seen: Mapping[str, Any]) -> str:
    """`lacks`, out of what `less` has said."""
    if not seen["total"]:
        return ""
    more = f" and {seen['total'] - NAMED} more" if seen["total"] > NAMED else ""
    return ", ".join(seen["some"]) + more


def lacks_by_node(events: DataFrame) -> dict[str, str]:
    """`lacks` by node."""
    told, active = facts(events), activity(events)
    nodes = sorted(row["node"] for row in events.select("node").distinct().collect())
    return {
        node: lacks(known_queues(active.where(F.col("node") == node), told.where(F.col("node") == node)))
        for node in nodes
    }


def not_judged(lacking: dict[str, str], what: Iterable[str] = NEEDS_FULL) -> dict[str, str]:
    """`what` could not be looked for everywhere, with the reason. `lacking`: `lacks` by node."""
    of_queues = "; ".join(f"of {queues} in {node}" for node, queues in sorted(lacking.items()) if queues)
    why = f"the journal has not all deliveries {of_queues}: the level `full` records them"
    return dict.fromkeys(what, why) if of_queues else {}
