"""The documents for readers, cut into headings, paragraphs, list items, table cells and code."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parents[3]
DOCS = ROOT / "docs"
PAGES = sorted(DOCS.rglob("*.md"))

HEADING, PARAGRAPH, ITEM, CELL, CODE = "heading", "paragraph", "item", "cell", "code"

_FENCE = re.compile(r"^(?P<indent> *)(?P<fence>```+)(?P<info>.*)$")
_ITEM = re.compile(r"^ *(?:[-*]|\d+\.) +(?P<text>.*)$")
_RULE = re.compile(r"^\|?[ :|-]+\|?$")


class Block(NamedTuple):
    """A piece of a document: its kind, the line it begins in, its text, and of code the language."""

    kind: str
    line: int
    text: str
    language: str = ""


def name_of(path: Path) -> str:
    """The path of a document below the root of the sources."""
    return path.relative_to(ROOT).as_posix()


def blocks_of(text: str) -> Iterator[Block]:
    """Cut Markdown into blocks, without comments, rules of tables, marks of admonitions and snippets."""
    lines = re.sub(r"<!--.*?-->", lambda found: "\n" * found[0].count("\n"), text, flags=re.DOTALL).split(
        "\n"
    )
    kind, first, words = "", 0, list[str]()
    number = 0
    while number < len(lines):
        line = lines[number]
        fence = _FENCE.match(line)
        heading, item = line.startswith("#"), _ITEM.match(line)
        new_part = not line.strip() or fence or heading or item or line.startswith(("|", "!!!"))
        if words and (new_part or not kind):
            yield Block(kind, first + 1, " ".join(words))
            words = []
        if fence:
            body, begin = list[str](), number
            number += 1
            while not lines[number].strip().startswith(fence["fence"]):
                body.append(lines[number].removeprefix(fence["indent"]))
                number += 1
            yield Block(CODE, begin + 1, "\n".join(body) + "\n", fence["info"].strip())
        elif heading:
            yield Block(HEADING, number + 1, line.lstrip("#").strip())
        elif line.startswith("|"):
            if not _RULE.match(line):
                for cell in _cells(line):
                    yield Block(CELL, number + 1, cell)
        elif item:
            kind, first, words = ITEM, number, [item["text"].strip()]
        elif line.strip() and not line.startswith(("!!!", "--8<--")):
            if not words:
                kind, first = PARAGRAPH, number
            words.append(line.strip())
        number += 1
    if words:
        yield Block(kind, first + 1, " ".join(words))


def _cells(row: str) -> list[str]:
    """The cells of a row of a table. A bar within a code span, or behind a backslash, is part of a cell."""
    hidden = re.sub(r"`[^`]*`", lambda found: found[0].replace("|", "\0"), row.replace(r"\|", "\0"))
    return [cell.replace("\0", "|").strip() for cell in hidden.strip().strip("|").split("|")]


def sentences_of(text: str) -> Iterator[str]:
    """The sentences of a block, with each code span and each link address as a single word."""
    plain = re.sub(r"`[^`]*`", "Code", text)
    plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", plain)
    plain = re.sub(r"[*_]{1,2}(\S(?:.*?\S)?)[*_]{1,2}", r"\1", plain)
    for sentence in re.split(r"(?<=[.!?:])\s+(?=[\"(]?(?:[A-Z0-9]|amqp))", plain):
        if sentence.strip():
            yield sentence.strip()
