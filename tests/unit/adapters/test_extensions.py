"""Every name in the code that is beyond the specifications has a description."""

import ast
import re
from pathlib import Path

from broker.adapters.amqp10.link_arguments import FILTERS as LINK_FILTERS
from broker.adapters.extensions import (
    ANNOTATIONS,
    BINDING_ARGUMENTS,
    CLIENT_PROPERTIES,
    CONSUMER_ARGUMENTS,
    DELIVERED_HEADERS,
    EXCHANGE_ARGUMENTS,
    EXCHANGE_TYPES,
    FILTERS,
    PUBLISHED_HEADERS,
    SPARK_HEADERS,
    of_rules,
)
from broker.core.arguments.consumer import CONSUMER_RULES
from broker.core.arguments.queue import QUEUE_RULES
from broker.core.arguments.remote import LINK_COUNTS, LINK_PATH
from broker.core.routing.kinds import KINDS

ROOT = Path(__file__).parents[3]
NAME = re.compile(r"(x-[a-z-]*[a-z]|JMSX\w+|B?CC|(?:apache\.org|rabbitmq|amqpd|amqp):[a-z-]*filter[a-z:-]*)")
PREFIXES = {"x-first-death", "x-last-death", "x-expired", "x-receipt", "x-opt-delivery", "x-basic", "x-del"}
"""Beginnings of names, which the code compares with."""

OTHERS = {
    "x-reason",  # a header of HTTP
    "x-amqpd-page",
    "x-content-type-options",
    "x-super-stream",  # arguments of RabbitMQ's super streams that have no effect
    "x-stream-partition-order",
    "JMSXUserID",  # a property that selectors know
    *LINK_FILTERS,
    LINK_PATH,  # arguments with which the link of a remote queue looks at the queue of another amqpd
    LINK_COUNTS,
}


def names_in(source: str) -> set[str]:
    """The names that a module defines as constants: assigned to a capital name, or keys of such a table."""
    found: set[str] = set()
    for statement in ast.parse(source).body:
        if isinstance(statement, (ast.Assign, ast.AnnAssign)) and statement.value is not None:
            for each in ast.walk(statement.value):
                if isinstance(each, ast.Constant) and isinstance(each.value, (str, bytes)):
                    text = each.value if isinstance(each.value, str) else each.value.decode("latin-1")
                    if NAME.fullmatch(text.removesuffix("-")):
                        found.add(text.removesuffix("-"))
    return found


def test_each_name_in_the_code_is_described() -> None:
    described = {
        *QUEUE_RULES,
        *CONSUMER_RULES,
        *CONSUMER_ARGUMENTS,
        *EXCHANGE_ARGUMENTS,
        *BINDING_ARGUMENTS,
        *CLIENT_PROPERTIES,
        *PUBLISHED_HEADERS,
        *DELIVERED_HEADERS,
        *SPARK_HEADERS,
        *ANNOTATIONS,
        *EXCHANGE_TYPES,
        *FILTERS,
    }
    files = [
        path
        for package in ("broker", "protocol", "pipeline")
        for path in (ROOT / package).rglob("*.py")
        if path.name != "extensions.py"
    ]
    known = {name for path in files for name in names_in(path.read_text())}
    assert len(known) > 90
    assert known - described - PREFIXES - OTHERS == set()


def test_each_type_of_exchange_is_described() -> None:
    assert set(EXCHANGE_TYPES) == set(KINDS)


def test_argument_rules_have_descriptions_and_allowed_values() -> None:
    arguments = of_rules(QUEUE_RULES)
    assert arguments["x-max-length"].allowed == "an integer, at least 0"
    assert arguments["x-overflow"].allowed == "one of drop-head, reject-publish, reject-publish-dlx"
    assert all(each.description and each.allowed for each in arguments.values())
    assert all(each.description for each in of_rules(CONSUMER_RULES).values())
