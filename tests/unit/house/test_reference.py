"""The reference has an entry with a description for each name that users meet, and is written plainly."""

import importlib
import importlib.util
import pkgutil
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from types import ModuleType, SimpleNamespace

import pytest
from fastapi import APIRouter
from fastapi.routing import APIRoute

import broker.admin.api
from broker.adapters import extensions
from broker.admin.app import PAGES as PLAIN_PAGES
from broker.admin.app import PREFIX
from broker.admin.metrics.exposition import describe_metrics
from broker.cli import COMMANDS
from broker.core.arguments.consumer import CONSUMER_RULES
from broker.core.arguments.queue import QUEUE_RULES
from broker.core.policies.policy import QUEUE_KEYS
from broker.ctl.command import MODULES
from config.settings import Settings
from pipeline.arguments import JOBS

HOOK = Path(__file__).parents[3] / "docs" / "hooks" / "reference.py"
WORDS_MAX = 30
BAD_START = re.compile(
    r"(?:to whom|what|which|who|whoever|whom|whose|those|that|such|it|its|they|ones?|somebody|someone|of)\b",
    re.IGNORECASE,
)
"""Words that leave the noun of a sentence out."""


@cache
def reference() -> ModuleType:
    spec = importlib.util.spec_from_file_location("reference", HOOK)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


@cache
def page(name: str) -> str:
    title, make = reference().PAGES[name]
    text: str = make()
    assert text.startswith(f"# {title}\n\nThis page ")
    return text


def names() -> list[str]:
    return list(reference().PAGES)


def entries(name: str) -> dict[str, str]:
    """The paragraph behind each heading in code of a page."""
    found = re.findall(r"^#{2,3} `(.+)`\n\n(.+)$", page(name), re.MULTILINE)
    assert len(found) == len(dict(found)), "a name has two entries"
    return dict(found)


def routes() -> Iterator[str]:
    """The methods and paths that the routers of the HTTP API serve."""
    for each in pkgutil.iter_modules(broker.admin.api.__path__):
        module = importlib.import_module(f"broker.admin.api.{each.name}")
        for router in vars(module).values():
            if isinstance(router, APIRouter):
                for route in router.routes:
                    if isinstance(route, APIRoute):
                        yield from (f"{method} {PREFIX}{route.path}" for method in route.methods or ())


def test_each_argument_has_its_entry() -> None:
    assert set(entries("queue-arguments")) == set(QUEUE_RULES)
    consumer = {*CONSUMER_RULES, *extensions.CONSUMER_ARGUMENTS, *extensions.CLIENT_PROPERTIES}
    assert set(entries("consumer-arguments")) == consumer
    assert set(entries("exchanges")) == {
        *extensions.EXCHANGE_TYPES,
        *extensions.EXCHANGE_ARGUMENTS,
        *extensions.BINDING_ARGUMENTS,
    }


def test_each_header_filter_and_key_has_its_entry() -> None:
    assert set(entries("headers")) == {
        *extensions.PUBLISHED_HEADERS,
        *extensions.DELIVERED_HEADERS,
        *extensions.ANNOTATIONS,
        *extensions.SPARK_HEADERS,
    }
    assert set(entries("filters")) == set(extensions.FILTERS)
    assert set(entries("policy-keys")) == {*QUEUE_KEYS, *extensions.POLICY_KEYS}


def test_each_setting_has_its_entry() -> None:
    assert set(entries("settings")) == set(Settings.model_fields)
    assert "- Default: `67108864`" not in page("settings"), "sizes are shown as the file has them"
    assert '- Default: `"64MiB"`' in page("settings")


def test_each_metric_has_its_entry() -> None:
    shown = {name for name in entries("metrics") if not name.startswith("process_")}
    assert shown == {each.name for each in describe_metrics()}


def test_each_http_route_has_its_entry() -> None:
    served = list(routes())
    assert len(served) > 150
    assert set(entries("http")) == {*served, *(f"GET {path}" for path in PLAIN_PAGES)}


def test_each_query_of_a_route_is_described() -> None:
    assert "- Query `if-empty`: " in page("http")
    assert re.findall(r"^- Query `.+`: *$", page("http"), re.MULTILINE) == []


def test_each_command_has_its_entry() -> None:
    shown = {"amqpd", *(f"amqpd {name}" for name in COMMANDS)}
    assert shown <= set(entries("amqpd"))
    assert {"amqpd definitions export", "amqpd journal verify"} <= set(entries("amqpd"))
    own = {f"amqpctl {command.__name__}" for module in MODULES for command in module.COMMANDS}
    assert set(entries("amqpctl")) == {"amqpctl", *own}
    assert set(entries("pipeline")) == {f"amqpd pipeline run {name}" for name in JOBS}


@pytest.mark.parametrize("name", ["amqpd", "amqpctl"])
def test_each_option_of_a_command_is_described(name: str) -> None:
    options = re.findall(r"^- `[^`]+`: (.*)$", page(name), re.MULTILINE)
    assert len(options) > 30
    assert all(len(option) > 5 for option in options)


@pytest.mark.parametrize("name", names())
def test_descriptions_are_plain(name: str) -> None:
    text = re.sub(r"^```.*?^```$", "", page(name), flags=re.MULTILINE | re.DOTALL)
    wrong = []
    for line in text.splitlines():
        plain = re.sub(r"`[^`]*`", "Code", re.sub(r"^(?:#+|-) ", "", line))
        for sentence in re.split(r"(?<=[.!?:])\s+(?=[A-Z0-9])", plain):
            if BAD_START.match(sentence) or len(sentence.split()) > WORDS_MAX:
                wrong.append(sentence)
    assert wrong == []


@pytest.mark.parametrize("name", names())
def test_links_lead_to_entries(name: str) -> None:
    for target, anchor in re.findall(r"\]\(([\w-]+)\.md(?:#([\w-]+))?\)", page(name)):
        assert target in names()
        assert not anchor or anchor in entries(target)


def test_the_pages_are_in_the_menu_and_on_the_first_page() -> None:
    config = SimpleNamespace(nav=[{"Home": "index.md"}, {"Reference": ["reference/index.md"]}])
    menu = reference().on_config(config).nav[1]["Reference"]
    assert menu[0] == "reference/index.md"
    assert [next(iter(each.values())) for each in menu[1:]] == [f"reference/{name}.md" for name in names()]
    first = SimpleNamespace(file=SimpleNamespace(src_uri="reference/index.md"))
    shown = reference().on_page_markdown("# Reference\n", first, None, None)
    assert re.findall(r"^- \[.+\]\((.+)\.md\)$", shown, re.MULTILINE) == names()
