"""Makes `format("amqp")` known: Spark looks into all modules called pyspark_* for an unknown format.

Every session pays for what is imported here, so it is next to nothing.
"""

from typing import Any

__all__ = ["DefaultSource"]


def __getattr__(name: str) -> Any:
    """The source, when Spark asks for it."""
    if name != "DefaultSource":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    from pipeline.connector.source import AmqpDataSource

    return AmqpDataSource
