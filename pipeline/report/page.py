"""The audit as one self-contained HTML file: findings, their meaning, and the course of the queues."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from html import escape
from pathlib import Path
from typing import Any, Final

from pyspark.sql import DataFrame

from pipeline.jobs.audit import OTHER_MEANINGS, Audit
from pipeline.jobs.verdicts import HARMLESS, MEANINGS
from pipeline.report.figures import compute_series, figures
from pipeline.report.plots import axis_of

STYLE: Final = """
:root{color-scheme:light dark;--back:#f6f7f9;--paper:#fff;--ink:#1b2330;--soft:#5d6878;--rule:#e3e7ed;
--good:#1a7f4b;--bad:#c0322b;--c1:#2563c9;--c2:#0f8f83;--c3:#c2410c;--c4:#8b5cf6}
@media(prefers-color-scheme:dark){:root{--back:#10141b;--paper:#181e28;--ink:#e7ebf2;--soft:#97a3b6;
--rule:#2a3342;--good:#4cc38a;--bad:#ff7b72;--c1:#6ea8fe;--c2:#3fd0bf;--c3:#ff9d5c;--c4:#b79bff}}
*{box-sizing:border-box}body{margin:0;background:var(--back);color:var(--ink);
font:15px/1.55 system-ui,-apple-system,"Segoe UI",Roboto,sans-serif;font-variant-numeric:tabular-nums}
main{max-width:1080px;margin:0 auto;padding:32px 20px 64px}
header,figure,section.finding,section:not([class]){background:var(--paper);border:1px solid var(--rule);
border-radius:12px;padding:22px 26px;margin:0 0 18px}
header{border-left:6px solid var(--good)}header.found{border-left-color:var(--bad)}
.over{margin:0;color:var(--soft);font-size:13px;letter-spacing:.04em}h1{margin:.1em 0;font-size:34px;
line-height:1.2;letter-spacing:-.02em}header p:last-child{margin:.3em 0 0;color:var(--soft)}
h2{margin:0 0 6px;font-size:17px}h2::first-letter{text-transform:uppercase}
h2 em{font-style:normal;color:var(--bad);
margin-left:.3em}h2 small{color:var(--soft);font-weight:400;font-size:13px}
.cards{display:grid;grid-template-columns:repeat(auto-fill,minmax(180px,1fr));gap:12px;margin:0 0 18px}
.card{background:var(--paper);border:1px solid var(--rule);border-radius:12px;padding:14px 16px;
color:inherit;text-decoration:none}.card b{display:block;font-size:26px;line-height:1.1}
.card span{color:var(--soft);font-size:13px}.good b{color:var(--good)}.bad b{color:var(--bad)}
.bad{border-color:var(--bad)}.unknown b{color:var(--soft)}
.note{border-left:4px solid var(--c3);padding:4px 14px;color:var(--soft)}
svg{display:block;width:100%;height:auto}.grid{stroke:var(--rule)}.axis{fill:var(--soft);font-size:12px}
.stroke{fill:none;stroke-width:2;stroke-linejoin:round}.shade{opacity:.1}
.mark{stroke:var(--bad);stroke-width:1.5;opacity:.7}
.s1{stroke:var(--c1)}.s2{stroke:var(--c2)}.s3{stroke:var(--c3)}.s4{stroke:var(--c4)}
.f1{fill:var(--c1)}.f2{fill:var(--c2)}.f3{fill:var(--c3)}.f4{fill:var(--c4)}
.legend{display:flex;flex-wrap:wrap;gap:18px;color:var(--soft);font-size:13px;margin:0 0 8px}
.dot{display:inline-block;width:10px;height:10px;border-radius:3px;margin-right:6px}
.c1{background:var(--c1)}.c2{background:var(--c2)}.c3{background:var(--c3)}.c4{background:var(--c4)}
.finding p{margin:0 0 10px;color:var(--soft)}.scroll{overflow-x:auto}
table{border-collapse:collapse;width:100%;font-size:14px}th{text-align:left;color:var(--soft);
font-weight:500;white-space:nowrap}th,td{padding:6px 14px 6px 0;border-bottom:1px solid var(--rule)}
td{white-space:nowrap}tr:last-child td{border-bottom:0}.more,.empty{color:var(--soft)}
"""

ROWS_OF_KIND: Final = 20
ALL_MEANINGS: Final = MEANINGS | OTHER_MEANINGS


def write_report(path: Path, found: Audit, events: DataFrame) -> None:
    """Write the page completely or not at all. Raises OSError."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    temporary.write_text(page(found, compute_series(found, events)), encoding="utf-8")
    temporary.replace(path)


def page(found: Audit, points: Sequence[Mapping[str, float | None]]) -> str:
    """Return the page."""
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
