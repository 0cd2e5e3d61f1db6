"""Rules of language.md for documents, docstrings and comments that a program can check.

A sentence begins with its noun or an imperative, has at most 30 words, and uses the words of the glossary.
"""

import ast
import io
import re
import tokenize
from collections.abc import Iterator
from itertools import chain
from pathlib import Path

import pytest

from tests.support.docs.documents import CELL, CODE, PAGES, ROOT, Block, blocks_of, name_of, sentences_of

README = ROOT / "README.md"
DOCUMENTS = [README, *PAGES]

SENTENCE_WORDS_MAX = 30
CELL_WORDS_MAX = 40
README_LINES_MAX = 120

REFUSED_FIRST = re.compile(
    r"(?:to whom|what|which|who|whoever|whom|whose|those|that|such)\b"
    r"|(?:it|its|they|one|ones|somebody|someone|of)\b",
    re.IGNORECASE,
)
"""Words that no heading and no sentence begins with: the reader would have to look for their noun."""

REFUSED_PHRASES = {
    r"le(?:t|ts|tting) go of": "remove, release or forget",
    r"give(?:s|n)? way": "be closed or replaced",
    r"stand(?:s|ing)? for": "mean",
    r"what (?:there is|is there)": "name the objects",
    r"what comes back": "a returned message",
    r"\bgone\b": "deleted, removed or closed",
    r"\btold\b": "notified, or an event is sent",
    r"\basked\b": "checked or requested",
    r"take(?:s)? turns": "share round-robin",
    r"(?:its|their) turn\b": "name the step",
    r"\bwhoever\b": "name the actor",
    r"\bha(?:s|ve) (?:\w+ ){1,3}be\b": "use the verb",
}
"""Phrases of an older style, and what is written instead."""

TOOLS = re.compile(r"type:|noqa\b|pragma:|fmt:")
"""Comments that a tool reads."""


def prose(path: Path) -> list[Block]:
    return [block for block in blocks_of(path.read_text(encoding="utf-8")) if block.kind != CODE]


@pytest.fixture(params=DOCUMENTS, ids=name_of)
def document(request: pytest.FixtureRequest) -> Path:
    path: Path = request.param
    return path


def test_sentences_begin_with_their_noun_or_an_imperative(document: Path) -> None:
    wrong = [
        f"{block.line}: {sentence}"
        for block in prose(document)
        for sentence in sentences_of(block.text)
        if REFUSED_FIRST.match(sentence.lstrip("\"'("))
    ]
    assert wrong == []


def test_sentences_are_short(document: Path) -> None:
    wrong = [
        f"{block.line}: {len(sentence.split())} words: {sentence}"
        for block in prose(document)
        if block.kind != CELL
        for sentence in sentences_of(block.text)
        if len(sentence.split()) > SENTENCE_WORDS_MAX
    ]
    assert wrong == []


def test_table_cells_are_short(document: Path) -> None:
    wrong = [
        f"{block.line}: {len(block.text.split())} words: {block.text}"
        for block in prose(document)
        if block.kind == CELL and len(block.text.split()) > CELL_WORDS_MAX
    ]
    assert wrong == []


def test_phrases_are_those_of_the_field(document: Path) -> None:
    wrong = [
        f"{block.line}: {found[0]!r}: {instead}"
        for block in prose(document)
        for phrase, instead in REFUSED_PHRASES.items()
        if (found := re.search(phrase, unquoted(block.text), re.IGNORECASE))
    ]
    assert wrong == []


def test_a_page_begins_with_a_title_and_its_purpose(document: Path) -> None:
    first, second, *_ = blocks_of(document.read_text(encoding="utf-8"))
    assert first.kind == "heading"
    assert second.kind == "paragraph"


def test_the_readme_fits_on_a_screen() -> None:
    assert len(README.read_text(encoding="utf-8").splitlines()) <= README_LINES_MAX


def test_links_of_the_readme_lead_somewhere() -> None:
    links = re.findall(r"\]\(([^)#]+)", README.read_text(encoding="utf-8"))
    assert len(links) > 20
    assert [link for link in links if not (ROOT / link).is_file()] == []


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("A queue keeps messages. The consumer takes them.", 2),
        ("The value of `a. B` is 1.5 ms. See [the page. Here](x.md).", 3),
        ("Two modes: One is short.", 2),
    ],
)
def test_text_is_split_into_sentences(text: str, count: int) -> None:
    assert len(list(sentences_of(text))) == count


def test_text_is_split_into_blocks() -> None:
    text = "# Title\n\nA paragraph\non two lines.\n\n- first\n  goes on\n- second\n\n"
    text += "| a | `b|c` |\n|---|---|\n| d | e |\n\n```sh\n# no heading\n```\n"
    found = [(block.kind, block.text) for block in blocks_of(text)]
    assert found == [
        ("heading", "Title"),
        ("paragraph", "A paragraph on two lines."),
        ("item", "first goes on"),
        ("item", "second"),
        ("cell", "a"),
        ("cell", "`b|c`"),
        ("cell", "d"),
        ("cell", "e"),
        ("code", "# no heading\n"),
    ]


def sources() -> Iterator[tuple[str, str]]:
    """Yield the places and texts of all Python sources, also of the tests."""
    for folder in ("broker", "protocol", "config", "pipeline", "docker", "tests"):
        for path in sorted((ROOT / folder).rglob("*.py")):
            yield str(path.relative_to(ROOT)), path.read_text(encoding="utf-8")
    yield "setup.py", (ROOT / "setup.py").read_text(encoding="utf-8")


def docstrings() -> Iterator[tuple[str, str]]:
    """Yield the places and texts of all docstrings."""
    kinds = (ast.Module, ast.ClassDef, ast.FunctionDef, ast.AsyncFunctionDef)
    for name, source in sources():
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, kinds) and (text := ast.get_docstring(node)):
                yield f"{name}:{getattr(node, 'lineno', 1)}", text


def comments_of(source: str) -> Iterator[tuple[int, str]]:
    """Yield the first lines and texts of the comments; whole lines that follow each other are one comment.

    Comments for tools are skipped (`type:`, `noqa`), and so are the dashes of a heading.
    """
    first, text, end = 0, "", -1
    for token in tokenize.generate_tokens(io.StringIO(source).readline):
        if token.type != tokenize.COMMENT:
            continue
        line = token.string.lstrip("#- ")
        alone = not token.line[: token.start[1]].strip()
        if alone and token.start[0] == end + 1:
            text, end = f"{text} {line}", end + 1
            continue
        if text:
            yield first, text
        first, text = token.start[0], "" if TOOLS.match(line) else line
        end = first if alone else -1
    if text:
        yield first, text


def comments() -> Iterator[tuple[str, str]]:
    for name, source in sources():
        for line, text in comments_of(source):
            yield f"{name}:{line}", text


def test_docstrings_begin_with_their_noun_or_an_imperative() -> None:
    found = list(docstrings())
    wrong = [f"{place}: {text.splitlines()[0]}" for place, text in found if REFUSED_FIRST.match(text)]

    assert len(found) > 8000
    assert wrong == []


def test_comments_begin_with_their_noun_or_an_imperative() -> None:
    found = list(comments())
    wrong = [f"{place}: {text}" for place, text in found if REFUSED_FIRST.match(text)]

    assert len(found) > 1000
    assert wrong == []


def test_phrases_of_docstrings_and_comments_are_those_of_the_field() -> None:
    wrong = [
        f"{place}: {found[0]!r}: {instead}"
        for place, text in chain(docstrings(), comments())
        for phrase, instead in REFUSED_PHRASES.items()
        if (found := re.search(phrase, unquoted(text), re.IGNORECASE))
    ]
    assert wrong == []


def unquoted(text: str) -> str:
    """Return the words of a text without the code in backquotes, on one line."""
    return " ".join(re.sub(r"`[^`]*`", "", text).split())


def test_lines_of_comment_are_joined() -> None:
    source = "# two\n# lines\nx = 1  # first\n# its own\n"
    source += "y = 2  # noqa: E501\nz = 3  # type: ignore\n# ---- heading\n"
    assert list(comments_of(source)) == [(1, "two lines"), (3, "first"), (4, "its own"), (7, "heading")]


def test_docstrings_do_not_name_the_base_class_of_a_method() -> None:
    found = list(docstrings())
    names = "|".join(sorted(class_names()))
    wrong = [place for place, text in found if re.search(rf" \((?:{names})\)[.:]", text.splitlines()[0])]

    assert [place for place in wrong if not place.startswith("tests/")] == []


def class_names() -> set[str]:
    """The names of all classes of the product."""
    return {
        node.name
        for folder in ("broker", "protocol", "config", "pipeline")
        for path in (ROOT / folder).rglob("*.py")
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8")))
        if isinstance(node, ast.ClassDef)
    }
