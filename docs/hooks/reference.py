"""Make the pages of the reference from the code's own data, when MkDocs builds the site.

Descriptions are data of the code: beside the rule of an argument, in the declaration of a setting, a route or
a command. This program brings them into pages. Nothing of the pages is kept in the repository.
"""

from __future__ import annotations

import io
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import redirect_stdout, suppress
from pathlib import Path
from typing import Any, Final, cast

ROOT: Final = Path(__file__).resolve().parents[2]
if str(ROOT) not in sys.path:
    sys.path.insert(0, str(ROOT))  # the packages of this checkout

# all that the pages take from the code
from prometheus_client import CollectorRegistry, ProcessCollector
from typer.main import get_command

from broker import __version__
from broker.adapters import extensions
from broker.adapters.extensions import Extensions, of_rules
from broker.admin.api.routes import create_api
from broker.admin.app import PAGES as PLAIN_PAGES
from broker.admin.metrics.exposition import describe_metrics
from broker.admin.metrics.text import Described
from broker.cli import command_line
from broker.core.arguments.consumer import CONSUMER_RULES
from broker.core.arguments.queue import QUEUE_RULES
from broker.core.policies.policy import (
    ARGUMENT_PREFIX,
    LOWEST_WINS,
    MIRRORING_KEYS,
    OPERATOR_KEYS,
    POLICY_WINS,
    QUEUE_KEYS,
    WITHOUT_EFFECT,
)
from broker.ctl.command import BEHIND, control_line
from config.loader import flag, variable
from config.settings import Settings, allowed_values
from pipeline.arguments import FLAGS, JOBS
from pipeline.command import main as run_pipeline

DEFAULTS: Final = ROOT / "config" / "amqpd.toml"
SECTION: Final = "Reference"
FOLDER: Final = "reference"
INDEX: Final = f"{FOLDER}/index.md"
HOOKS: Final = "hooks/"

IN_LISTS: Final = "page_size"
"""A query that only lists have."""

QUEUE_PAGE: Final = "queue-arguments"
SETTINGS_PAGE: Final = "settings"

Facts = Iterable[tuple[str, str]]


# --- pieces of pages


def entry(name: str, text: str, facts: Facts = (), level: int = 2) -> str:
    """Return a heading with a name in code, a description, and facts as a list."""
    paragraphs = re.sub(r"(?<!\n)\n(?!\n)", " ", text.strip())
    lines = [f"{'#' * level} `{name}`", "", paragraphs, ""]
    shown = [f"- {what}: {fact}" for what, fact in facts if fact]
    return "\n".join([*lines, *shown]).rstrip() + "\n\n"


def page(title: str, purpose: str, *parts: str) -> str:
    """Return a page: its title, the sentence that says what it helps to do, and its parts."""
    return f"# {title}\n\n{purpose}\n\n" + "".join(parts)


def entries(names: Extensions, level: int = 2) -> str:
    """Return an entry for each of the names."""
    return "".join(
        entry(name, each.description, [("Value", each.allowed)], level) for name, each in names.items()
    )


def code(text: object) -> str:
    """Return a text as a code span."""
    return f"`{text}`"


def sentence(text: str) -> str:
    """Return a text with a capital letter and a full stop."""
    text = text.strip()
    return text[:1].upper() + text[1:] + ("" if text.endswith((".", "?", "!")) else ".")


# --- arguments, headers and filters


def queue_arguments() -> str:
    """The page of the arguments of queues."""
    parts = []
    for name, each in of_rules(QUEUE_RULES).items():
        key = name.removeprefix(ARGUMENT_PREFIX)
        policy = code(key) if key in QUEUE_KEYS else ""
        parts.append(entry(name, each.description, [("Value", each.allowed), ("Policy key", policy)]))
    return page(
        "Queue arguments",
        "This page describes each argument of queue.declare. The broker keeps and shows other arguments "
        "without effect, and warns in its log of a name that is nearly one of these. A wrong value is "
        "refused with 406.",
        *parts,
    )


def consumer_arguments() -> str:
    """The page of the arguments of consumers, and of client properties."""
    return page(
        "Consumer arguments",
        "This page describes each argument of basic.consume. A receiver of AMQP 1.0 passes the same names as "
        "properties or [filters](filters.md) of its link.",
        entries(of_rules(CONSUMER_RULES) | extensions.CONSUMER_ARGUMENTS),
        "## Client properties\n\nA client passes these properties in connection.start-ok.\n\n",
        entries(extensions.CLIENT_PROPERTIES, 3),
    )


def exchange_arguments() -> str:
    """The page of the types of exchanges, and of the arguments of exchanges and bindings."""
    types = "".join(entry(name, text, level=3) for name, text in extensions.EXCHANGE_TYPES.items())
    return page(
        "Exchanges and bindings",
        "This page describes the types of exchanges, and the arguments of exchange.declare, queue.bind and "
        "exchange.bind.",
        "## Types of exchanges\n\n",
        types,
        "## Arguments of exchanges\n\n",
        entries(extensions.EXCHANGE_ARGUMENTS, 3),
        "## Arguments of bindings\n\n",
        entries(extensions.BINDING_ARGUMENTS, 3),
    )


def headers() -> str:
    """The page of the headers and annotations of messages."""
    return page(
        "Headers and annotations",
        "This page describes the headers of messages that the broker reads or writes. A header of AMQP 0-9-1 "
        "is a message annotation of AMQP 1.0.",
        "## Headers from publishers\n\n",
        entries(extensions.PUBLISHED_HEADERS, 3),
        "## Headers from the broker\n\n",
        entries(extensions.DELIVERED_HEADERS, 3),
        "## Annotations of AMQP 1.0\n\n",
        entries(extensions.ANNOTATIONS, 3),
        "## Headers from Spark\n\n",
        entries(extensions.SPARK_HEADERS, 3),
    )


def filters() -> str:
    """The page of the filters of AMQP 1.0."""
    return page(
        "Filters of AMQP 1.0",
        "This page describes each filter of a link's source. The broker leaves unknown filters out of its "
        "answer. [Consumer arguments](consumer-arguments.md) are filters too.",
        entries(extensions.FILTERS),
    )


def policy_keys() -> str:
    """The page of the keys of policies."""
    parts = []
    arguments = of_rules(QUEUE_RULES)
    for key in sorted(QUEUE_KEYS):
        name = ARGUMENT_PREFIX + key
        link = f"[{code(name)}]({QUEUE_PAGE}.md#{name})"
        facts = [("Argument", link), ("Value", arguments[name].allowed), ("Precedence", precedence(key))]
        if key in OPERATOR_KEYS:
            facts.append(("Operator policies", "may set the key"))
        parts.append(entry(key, arguments[name].description, facts))
    mirroring = ", ".join(code(key) for key in sorted(MIRRORING_KEYS))
    return page(
        "Policy keys",
        "This page describes each key of a policy's definition, and the value that counts where a policy and "
        "an argument disagree.",
        *parts,
        entries(extensions.POLICY_KEYS),
        f"## Keys of mirrored queues\n\nRabbitMQ's keys {mirroring} are accepted without effect.\n",
    )


def precedence(key: str) -> str:
    """Return the value that counts where a policy and an argument have the same key."""
    if key in WITHOUT_EFFECT:
        return "the key has no effect"
    if key in LOWEST_WINS or key == "delivery-limit":
        return "the smallest value counts"
    if key in POLICY_WINS:
        return "the policy comes before the argument"
    if key == "overflow":
        return "the argument comes before the policy, except for quorum queues"
    return "the argument comes before the policy"


# --- settings and metrics


def settings() -> str:
    """The page of the settings."""
    defaults = tomllib.loads(DEFAULTS.read_text(encoding="utf-8"))
    parts = [
        entry(
            name,
            field.description or "",
            [
                ("Value", allowed_values(name)),
                ("Default", code(json.dumps(defaults[name]))),
                ("Flag", code(flag(name))),
                ("Environment", code(variable(name))),
            ],
        )
        for name, field in Settings.model_fields.items()
    ]
    return page(
        "Settings",
        "This page describes each setting of `amqpd serve`. A flag comes before the environment, the "
        "environment before the settings file, and the file before the default.",
        *parts,
        "## Settings file\n\nThis file has every key with its default. `--config FILE` names a file of your "
        "own.\n\n",
        f'```toml title="amqpd.toml"\n{DEFAULTS.read_text(encoding="utf-8")}```\n',
    )


def metrics() -> str:
    """The page of the metrics."""
    return page(
        "Metrics",
        "This page describes each metric. The metrics of queues, exchanges, connections and channels have "
        "their labels in `GET /metrics/per-object`. `GET /metrics` has their sums, without labels, where a "
        "sum means something. `GET /metrics/detailed` puts `detailed_` before the names of these metrics. "
        "The metrics of the process come from Prometheus's own client.",
        *(
            entry(
                each.name,
                sentence(each.text),
                [("Type", each.kind), ("Labels", ", ".join(map(code, each.labels)))],
            )
            for each in [*describe_metrics(), *of_process()]
        ),
    )


def of_process() -> Iterator[Described]:
    """Yield the metrics of the process, which the library names; none where there is no /proc."""
    for family in ProcessCollector(registry=CollectorRegistry()).collect():
        name = f"{family.name}_total" if family.type == "counter" else family.name
        yield Described(name, family.type, (), family.documentation)


# --- HTTP


def http() -> str:
    """The page of the HTTP paths."""
    specification = create_api(__version__, cast("Any", None)).openapi()
    groups: dict[str, list[str]] = {}
    lists: list[str] = []
    for path, operations in specification["paths"].items():
        group = groups.setdefault(path.split("/")[2], [])
        for method, operation in operations.items():
            found = queries(operation)
            if IN_LISTS in found:
                lists, found = list(found.values()), {IN_LISTS: "- Queries: those of [lists](#lists)"}
            group.append(operation_entry(f"{method.upper()} {path}", operation, found.values()))
    return page(
        "HTTP paths",
        "This page describes each path of the admin port. The paths under `/api` need the name and password "
        "of a user. `GET /api/openapi.json` describes the same paths for programs.",
        "## Paths without a user\n\n",
        *(entry(f"GET {path}", text, level=3) for path, text in PLAIN_PAGES.items()),
        "## Lists\n\nLong lists take these queries.\n\n",
        "\n".join(lists) + "\n\n",
        *(f"## Paths of `{name}`\n\n{''.join(found)}" for name, found in sorted(groups.items())),
    )


def queries(operation: Mapping[str, Any]) -> dict[str, str]:
    """Return the items of the parameters in the query of an operation, by name."""
    return {
        each["name"]: f"- Query {code(each['name'])}: {each.get('description', '')}"
        for each in operation.get("parameters", ())
        if each["in"] == "query"
    }


def operation_entry(name: str, operation: Mapping[str, Any], found: Iterable[str]) -> str:
    """Return the entry of a method of a path with its queries."""
    text = re.sub(r" \[[^\]]*\]$", "", str(operation.get("description", "")), flags=re.MULTILINE)
    listed = "\n".join(found)
    return entry(name, text, level=3) + (f"{listed}\n\n" if listed else "")


# --- commands


def amqpd() -> str:
    """The page of the commands of amqpd."""
    return page(
        "amqpd",
        "This page describes each command of `amqpd`.",
        *commands(get_command(command_line([])), "amqpd"),
    )


def amqpctl() -> str:
    """The page of the commands of amqpctl."""
    return page(
        "amqpctl",
        "This page describes each command of `amqpctl`, which administers a running broker over HTTP. The "
        "options of `amqpctl` go before or behind the name of a command.",
        *commands(get_command(control_line()), "amqpctl"),
    )


def commands(command: Any, name: str) -> Iterator[str]:
    """Yield the entries of a command and of the commands below it."""
    options = [shown for each in command.params if (shown := option(each))]
    if any(each.name in Settings.model_fields for each in command.params if each.name != "data_dir"):
        options.append(f"- each setting as a flag, see [settings]({SETTINGS_PAGE}.md)")
    yield entry(name, str(command.help or "")) + ("\n".join(options) + "\n\n" if options else "")
    for below, found in getattr(command, "commands", {}).items():
        yield from commands(found, f"{name} {below}")


def option(parameter: Any) -> str:
    """Return the item of an option or argument; "" for a setting."""
    if parameter.name in Settings.model_fields and parameter.name != "data_dir":
        return ""
    if str(parameter.name).startswith(BEHIND):  # described with amqpctl
        return ""
    if parameter.param_type_name == "argument":
        shown = str(parameter.metavar or parameter.name.upper())
    else:
        metavar = f" {parameter.metavar}" if parameter.metavar else ""
        shown = ", ".join(parameter.opts) + metavar
    text, _, named = str(parameter.help or "").removesuffix(")").partition(" (AMQPD_")
    environment = f"AMQPD_{named}" if named else parameter.envvar
    where = f" Environment: {code(environment)}." if environment else ""
    return f"- {code(shown)}: {sentence(text)}{where}"


def jobs() -> str:
    """The page of the commands of `amqpd pipeline`."""
    parts = []
    for name, text in JOBS.items():
        own = [code("--" + each.replace("_", "-")) for each, takers in FLAGS.items() if name in takers]
        parts.append(entry(f"amqpd pipeline run {name}", sentence(text), [("Options", ", ".join(own))]))
    return page(
        "amqpd pipeline",
        "This page describes each job of `amqpd pipeline`, which runs on Spark, and the options of its "
        "commands.",
        *parts,
        "## Options of `amqpd pipeline run`\n\nThe command prints this text with `--help`.\n\n",
        f"```text\n{help_of('run')}```\n\n",
        "## Options of `amqpd pipeline zip`\n\nThe command prints this text with `--help`.\n\n",
        f"```text\n{help_of('zip')}```\n",
    )


def help_of(command: str) -> str:
    """Return the help of a command of the pipeline."""
    printed = io.StringIO()
    with redirect_stdout(printed), suppress(SystemExit):
        run_pipeline([command, "--help"])
    return printed.getvalue()


PAGES: Final[dict[str, tuple[str, Callable[[], str]]]] = {
    QUEUE_PAGE: ("Queue arguments", queue_arguments),
    "consumer-arguments": ("Consumer arguments", consumer_arguments),
    "exchanges": ("Exchanges and bindings", exchange_arguments),
    "headers": ("Headers and annotations", headers),
    "filters": ("Filters of AMQP 1.0", filters),
    "policy-keys": ("Policy keys", policy_keys),
    SETTINGS_PAGE: ("Settings", settings),
    "metrics": ("Metrics", metrics),
    "http": ("HTTP paths", http),
    "amqpd": ("amqpd", amqpd),
    "amqpctl": ("amqpctl", amqpctl),
    "pipeline": ("amqpd pipeline", jobs),
}
"""The pages by name, with their titles, in the order of the menu."""


# --- the hooks of MkDocs


def on_config(config: Any) -> Any:
    """Put the pages into the menu."""
    shown = [INDEX, *({title: f"{FOLDER}/{name}.md"} for name, (title, _) in PAGES.items())]
    for section in config.nav or []:
        if isinstance(section, dict) and SECTION in section:
            section[SECTION] = shown
    return config


def on_files(files: Any, config: Any) -> Any:
    """Add the pages, and leave the hooks out of the site."""
    from mkdocs.structure.files import File

    for file in list(files):
        if file.src_uri.startswith(HOOKS):
            files.remove(file)
    for name, (_, make) in PAGES.items():
        files.append(File.generated(config, f"{FOLDER}/{name}.md", content=make()))
    return files


def on_page_markdown(markdown: str, page: Any, config: Any, files: Any) -> str:
    """List the pages on the first page of the section."""
    if page.file.src_uri != INDEX:
        return markdown
    return markdown + "\n" + "".join(f"- [{title}]({name}.md)\n" for name, (title, _) in PAGES.items())
