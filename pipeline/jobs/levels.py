"""What takes the level `full`, and of which queues the journal has less."""

from __future__ import annotations

from typing import Final

from pyspark.sql import DataFrame
from pyspark.sql import functions as F  # noqa: N812

NEEDS_FULL: Final = ("delivered_after_settle", "stuck_unacked", "undelivered", "reordered")
NAMED: Final = 3


def lacks(queues: DataFrame) -> str:
    """Which queues of one node the journal has not all deliveries of; `queues`: of `known_queues`."""
    name = F.coalesce("queue", F.concat(F.lit("number "), F.col("queue_id")))
    names = F.sort_array(F.collect_set(F.when(F.col("less"), name)))
    (row,) = queues.agg(F.size(names).alias("total"), F.slice(names, 1, NAMED).alias("some")).collect()
    if not row["total"]:
        return ""
    more = f" and {row['total'] - NAMED} more" if row["total"] > NAMED else ""
    return ", ".join(row["some"]) + more


def not_judged(lacking: dict[str, str]) -> dict[str, str]:
    """What could not be looked for everywhere, with the reason. `lacking`: `lacks` by node."""
    of_queues = "; ".join(f"of {queues} in {node}" for node, queues in sorted(lacking.items()) if queues)
    why = f"the journal has not all deliveries {of_queues}: the level `full` records them"
    return dict.fromkeys(NEEDS_FULL, why) if of_queues else {}
