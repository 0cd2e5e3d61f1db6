"""The audit as one HTML file that needs nothing else: what was found, what it means, and how it went."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from pipeline.jobs.audit import OTHER_MEANINGS, Audit
from pipeline.jobs.verdicts import HARMLESS, MEANINGS
from pipeline.report.axis import axis_of
from pipeline.report.figures import figures
from pipeline.report.series import series
from pipeline.report.style import STYLE

ROWS_OF_KIND: Final = 20
ALL_MEANINGS: Final = MEANINGS | OTHER_MEANINGS


def write_report(path: Path, found: Audit, events: DataFrame) -> None:
    """Write the page, whole or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(page(found, series(found, events)), encoding="utf-8")
    temporary.replace(path)


def page(found: Audit, points: Sequence[Mapping[str, float | None]]) -> str:
    """The page."""
    total = sum(found.findings.values())
    word = "Nothing is amiss" if found.clean else f"{total:,} finding{'s' if total > 1 else ''}"
    axis = axis_of(found)
    time = f"{axis.time(0):%Y-%m-%d %H:%M} to {axis.time(axis.buckets):%Y-%m-%d %H:%M} UTC." if axis else ""
    state = "clean" if found.clean else "found"
    body = [
        f'<header class="{state}"><p class="over">amqpd · audit of a journal</p>',
        f"<h1>{word}</h1><p>{found.events:,} events of {found.entries:,} messages in queues. "
        f"{time}</p></header>",
        _cards(found),
        _notes(found),
        figures(found, axis, points) if axis else "",
        *(_table(kind, found) for kind in ALL_MEANINGS if found.findings.get(kind)),
        _harmless(found),
    ]
    return (
        '<!doctype html><html lang="en"><head><meta charset="utf-8"><title>Audit: '
        f'{word}</title><meta name="viewport" content="width=device-width, initial-scale=1">'
        f"<style>{STYLE}</style></head><body><main>{''.join(body)}</main></body></html>\n"
    )


def _cards(found: Audit) -> str:
    cards = []
    for kind in ALL_MEANINGS:
        count = found.findings.get(kind, 0)
        state = "bad" if count else "unknown" if kind in found.not_judged else "good"
        number = "?" if state == "unknown" else f"{count:,}"
        link = f' href="#{kind}"' if count else ""
        cards.append(f'<a class="card {state}"{link}><b>{number}</b><span>{_words(kind)}</span></a>')
    return f'<section class="cards">{"".join(cards)}</section>'


def _notes(found: Audit) -> str:
    if not found.not_judged:
        return ""
    by_reason: dict[str, list[str]] = {}
    for kind, reason in found.not_judged.items():
        by_reason.setdefault(reason, []).append(_words(kind))
    return "".join(
        f'<p class="note">Could not be looked for: {", ".join(kinds)}; {escape(reason)}.</p>'
        for reason, kinds in by_reason.items()
    )


def _table(kind: str, found: Audit) -> str:
    rows = found.rows.get(kind, [])[:ROWS_OF_KIND]
    names = [name for name in (rows[0] if rows else {}) if name not in ("verdict", "queue_id")]
    head = "".join(f"<th>{_words(name)}</th>" for name in names)
    lines = "".join(f"<tr>{''.join(_cell(row[name]) for name in names)}</tr>" for row in rows)
    count = found.findings[kind]
    more = f'<p class="more">and {count - len(rows):,} more</p>' if count > len(rows) else ""
    return (
        f'<section id="{kind}" class="finding"><h2>{_words(kind)} <em>{count:,}</em></h2>'
        f"<p>{_meaning(kind)}</p>"
        f'<div class="scroll"><table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table></div>{more}'
        "</section>"
    )


def _meaning(kind: str) -> str:
    subject = "A message " if kind in MEANINGS else ""
    text = f"{subject}{ALL_MEANINGS[kind]}."
    return text[0].upper() + text[1:]


def _harmless(found: Audit) -> str:
    lines = "".join(
        f"<tr><td>{_words(kind)}</td><td>{found.others.get(kind, 0):,}</td><td>{text}</td></tr>"
        for kind, text in HARMLESS.items()
    )
    table = f'<div class="scroll"><table><tbody>{lines}</tbody></table></div>'
    return f"<section><h2>Everything else</h2>{table}</section>"


def _cell(value: Any) -> str:
    if value is None:
        return "<td></td>"
    text = f"{value:%Y-%m-%d %H:%M:%S}" if hasattr(value, "strftime") else str(value)
    return f'<td class="{"number" if isinstance(value, int) else "text"}">{escape(text)}</td>'


def _words(kind: str) -> str:
    return escape(kind.replace("_", " "))
