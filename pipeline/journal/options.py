"""The options of `format("amqp-journal")`."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Final, NamedTuple

from pipeline.connector.choices import Choices, OptionError, hide_credentials, split_url, strip_credentials
from pipeline.connector.offsets import EARLIEST, LATEST
from pipeline.connector.server import API_OF, API_PORTS, Server, make_server

FORMAT: Final = "amqp-journal"
_HTTP: Final = ("http://", "https://")
_AMQP_OF: Final = {http: amqp for amqp, http in API_OF.items()}
_SEQS: Final = 'JSON such as {"amqpd": 1000}'


class Bound(NamedTuple):
    """The begin or the end of reading. `seqs`: of nodes; EARLIEST and LATEST are allowed.

    `word`: EARLIEST or LATEST, without seqs. `time`: microseconds since 1970, which takes precedence over
    both.
    """

    word: int
    seqs: tuple[tuple[str, int], ...] = ()
    time: int | None = None


@dataclass(frozen=True)
class JournalOptions:
    """All options. Either `folder` or `server` is given.

    `rows`: limit of events of a batch; `poll`: seconds; `fetch_bytes`: bytes to read at once. `without`:
    names of files that are not to be read, an option that the audit sets.
    """

    folder: str | None
    server: Server | None
    starting: Bound
    ending: Bound
    rows: int | None
    fail_on_loss: bool
    poll: float
    fetch_bytes: int
    without: tuple[str, ...] = ()


def journal_options(given: Mapping[str, str], streaming: bool) -> JournalOptions:
    """Read the options. `streaming`: other defaults apply. Raises OptionError."""
    choices = Choices(_with_api(given), FORMAT)
    path = choices.text("path")
    has_url = choices.text("url") is not None
    if (path is not None) == has_url:
        raise OptionError(
            "one of the options 'path', the journal's folder, and 'url', its broker, is required: "
            "http://user:password@host:15672"
        )
    starting = _bound(choices, "startingOffsets", LATEST if streaming else EARLIEST, ("earliest", "latest"))
    time = choices.count("startingTimestamp", least=0)
    ending = _bound(choices, "endingOffsets", LATEST, ("latest",))
    if streaming and choices.text("endingOffsets") is not None:
        raise OptionError("option 'endingOffsets' is for batches: a stream has no end")
    options = JournalOptions(
        folder=None if path is None else _folder(path),
        server=make_server(choices) if has_url else None,
        starting=starting if time is None else starting._replace(time=time * 1000),
        ending=ending,
        rows=choices.count("maxEventsPerTrigger", "maxOffsetsPerTrigger"),
        fail_on_loss=choices.flag("failOnDataLoss", True),
        poll=choices.number("pollIntervalMs", 100) / 1000,
        fetch_bytes=choices.number("fetchBytes", 4 * 2**20, least=65536),
        without=tuple(json.loads(choices.text("without") or "[]")),
    )
    choices.refuse_others()
    return options


def is_served(journal: str) -> bool:
    """Whether `journal` is the URL of a broker, and no folder."""
    return journal.lower().startswith((*_HTTP, "amqp://", "amqps://"))


def journal_source(journal: str) -> dict[str, str]:
    """Return the options for the place of a journal: a folder, or a URL of its broker."""
    return {"url": journal} if is_served(journal) else {"path": journal}


def hide_password(journal: str) -> str:
    """Return a folder or a URL for messages: without a password."""
    return hide_credentials(journal) if is_served(journal) else journal


def _with_api(given: Mapping[str, str]) -> dict[str, str]:
    """Return the options, with the broker's HTTP URLs in the options that the connector reads."""
    options = {name.lower(): str(value) for name, value in given.items()}
    url = options.get("url", options.get("apiurl"))
    if url is None or not url.lower().startswith(_HTTP):
        return options
    urls, bases = [], []
    for each in url.split(","):
        part = split_url("url", each, API_PORTS, "http://user:password@host:15672")
        login, at, _ = part.netloc.rpartition("@")
        urls.append(
            f"{_AMQP_OF[part.scheme]}://{login}{at}"
            f"{f'[{part.hostname}]' if ':' in str(part.hostname) else part.hostname}"
        )
        bases.append(strip_credentials(part))
    api = options.get("apiurl") if "url" in options else None
    return options | {"url": ",".join(urls), "apiurl": api or ",".join(bases)}


def _folder(path: str) -> str:
    folder = path.removeprefix("file://")
    if "://" in folder:
        raise OptionError(
            f"option 'path' is '{hide_password(path)}': a journal is read from a local folder, "
            "or from its broker ('url')"
        )
    if not Path(folder).is_dir():
        raise OptionError(f"option 'path' is '{path}': there is no such folder")
    return str(Path(folder).absolute())


def _bound(choices: Choices, name: str, default: int, words: tuple[str, ...]) -> Bound:
    value = choices.text(name)
    known = {"earliest": EARLIEST, "latest": LATEST}
    if value is None:
        return Bound(default)
    if value.lower() in words:
        return Bound(known[value.lower()])
    try:
        document = json.loads(value)
    except (ValueError, RecursionError):  # RecursionError: nested too deeply
        document = None
    if not isinstance(document, dict) or not all(
        type(seq) is int and seq >= EARLIEST for seq in document.values()
    ):
        raise OptionError(f"option '{name}' is '{value}'; it is {' or '.join(words)}, or {_SEQS}")
    return Bound(default, tuple(sorted(document.items())))
