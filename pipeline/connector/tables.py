"""Tables of Spark's catalog, made by `CREATE TABLE ... USING amqp OPTIONS (...)`.

Spark keeps the options of a table and does not hand them to a source in Python that reads or writes the table
[Spark 4.3 PythonDataSourceV2.getTable]. It hands over the table's columns with their metadata. So the options
go into that metadata when the table is made, and come back with it.

Columns that an INSERT selects from another table may bring that table's metadata along. So what is read and
what is written have keys of their own, and a column that is written is NOT NULL: Spark then gives it the
metadata of its table.
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
"""The other properties that Spark gives a table."""


def is_table(given: Mapping[str, str]) -> bool:
    """Whether Spark makes a table with these options, instead of reading with them."""
    return any(name.lower().startswith(_PREFIX) for name in given)


def options_of_table(given: Mapping[str, str]) -> dict[str, str]:
    """The options that the statement names. Raises OptionError: a password is among them.

    The metadata of columns travels with rows, into files of Parquet too.
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
            "a table keeps its options where everybody who may read the table sees them: "
            "use option 'passwordFile' or 'passwordEnv' instead of a password"
        )
    return options


def kept(schema: StructType, options: Mapping[str, str], key: str) -> StructType:
    """The columns of a table, with its options. `key`: SOURCE or SINK."""
    return StructType(
        [
            StructField(field.name, field.dataType, field.nullable, {**field.metadata, key: dict(options)})
            for field in schema.fields
        ]
    )


def with_kept(given: Mapping[str, str], schema: StructType, key: str) -> dict[str, str]:
    """The options of a query, and behind them those of the table that it reads or writes.

    Raises OptionError: there are none.
    """
    found = {name.lower(): value for name, value in given.items()}
    for field in schema.fields:
        options = field.metadata.get(key)
        if isinstance(options, Mapping):
            return {str(name): str(value) for name, value in options.items()} | found
    if not found:
        raise OptionError(
            "option 'url' is missing, and all others too: Spark hands on the options of a table only if its "
            "CREATE TABLE names no columns"
        )
    return found
