"""Makes `format("amqp-journal")` known, as `pyspark_amqp` does for `format("amqp")`.

Every session imports this module, so it imports almost nothing itself.
"""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """Return the source when Spark looks it up."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline.journal.source import JournalDataSource

    return JournalDataSource
