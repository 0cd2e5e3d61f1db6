"""Tables of Spark's catalog, made by `CREATE TABLE ... USING amqp OPTIONS (...)`.

Spark stores the options of a table, but does not pass them to a Python source that reads or writes the table
[Spark 4.3 PythonDataSourceV2.getTable]. Spark passes the table's columns with their metadata. So the options
are stored in this metadata when the table is created.

Columns that an INSERT selects from another table may have that table's metadata. So reading and writing use
different keys, and a written column is NOT NULL: then Spark gives the column the metadata of its own table.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from pyspark.sql.types import StructField, StructType

from pipeline.connector.choices import Choices, OptionError, has_password

SOURCE: Final = "amqpd.source"
SINK: Final = "amqpd.sink"
_PREFIX: Final = "option."
"""The prefix of a table's options; Spark gives each option without the prefix too."""
_OF_SPARK: Final = frozenset(
    ("provider", "owner", "location", "comment", "collation", "external", "is_managed_location")
)
"""Other properties that Spark gives a table."""


def is_table(given: Mapping[str, str]) -> bool:
    """Whether Spark creates a table with these options, instead of reading."""
    return any(name.lower().startswith(_PREFIX) for name in given)


def read_table_options(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options that the statement names. Raises OptionError for a password.

    The metadata of columns is copied with rows, into Parquet files too.
    """
    options = {
        name.lower(): value
        for name, value in given.items()
        if not name.lower().startswith(_PREFIX) and name.lower() not in _OF_SPARK
    }
    choices = Choices(options)
    with_password = choices.text("password") is not None or any(
        has_password(each) for name in ("url", "apiUrl") for each in (choices.text(name) or "").split(",")
    )
    if with_password:
        raise OptionError(
            "a table keeps its options where all users who may read the table see them: "
            "use option 'passwordFile' or 'passwordEnv' instead of a password"
        )
    return options


def add_table_options(schema: StructType, options: Mapping[str, str], key: str) -> StructType:
    """Return the columns of a table with its options as metadata. `key`: SOURCE or SINK."""
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {**field.metadata, key: dict(options)})
            for field in schema.fields
        ]
    )


def merge_table_options(given: Mapping[str, str], schema: StructType, key: str) -> dict[str, str]:
    """Return the options of a query, and those of the table that the query reads or writes.

    Raises OptionError: the table has none.
    """
    merged = {name.lower(): value for name, value in given.items()}
    for field in schema.fields:
        options = field.metadata.get(key)
        if isinstance(options, Mapping):
            return {str(name): str(value) for name, value in options.items()} | merged
    if not merged:
        raise OptionError(
            "option 'url' is missing, like all others: Spark passes the options of a table only if its "
            "CREATE TABLE names no columns"
        )
    return merged
