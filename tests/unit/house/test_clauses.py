"""The table of clauses of AMQP 1.0, and the marks of tests by which they are found."""

import ast
from xml.etree import ElementTree

import pytest

from tests.support.amqp10.clause_tables import AMQP_1_0, COMPLETE, DOCUMENTS, EXCEPTIONS
from tests.support.amqp10.clauses import Mark, main, marks, marks_in, report, untested
from tests.support.amqp10.specification import FOLDER, elements

MARKS = marks()

# Sections of the specification's XML, which has no numbers, by their parts: what they are in the text, and
# which of their clauses is the first type. The types of a section are numbered in their order.
NUMBERED = [
    ("types", "encodings", "1.6", 1),
    ("transport", "performatives", "2.7", 1),
    ("transport", "definitions", "2.8", 1),
    ("messaging", "message-format", "3.2", 1),
    ("messaging", "delivery-state", "3.4", 1),
    ("messaging", "addressing", "3.5", 3),
    ("transactions", "coordination", "4.5", 1),
    ("security", "sasl", "5.3.3", 1),
]
TITLES = {"std-dist-mode": "standard-distribution-mode", "txn-capability": "transaction-capability"}


@pytest.mark.parametrize("mark", sorted({mark[:2] for mark in MARKS if mark.document in DOCUMENTS}))
def test_a_mark_names_a_clause_that_there_is(mark: tuple[str, str]) -> None:
    document, clause = mark

    assert clause in DOCUMENTS[document]


@pytest.mark.parametrize("document", COMPLETE)
def test_every_clause_has_a_test_or_a_reason_to_have_none(document: str) -> None:
    assert set(untested(document, MARKS)) == set(EXCEPTIONS[document])
    assert all(EXCEPTIONS[document].values())


def test_exceptions_are_of_clauses_that_need_tests() -> None:
    assert set(EXCEPTIONS) <= set(COMPLETE) <= set(DOCUMENTS)


def test_documents_are_spelt_as_they_are_elsewhere() -> None:
    others = {"amqp-0-9", "amqp-0-9-1", "amqpd", "rabbitmq-extensions"}

    assert {mark.document for mark in MARKS} <= others | set(DOCUMENTS)


@pytest.mark.parametrize(("part", "section", "above", "first"), NUMBERED)
def test_numbers_are_those_of_the_specification(part: str, section: str, above: str, first: int) -> None:
    path = FOLDER / f"{part}.bare.xml"
    if not path.exists():
        pytest.skip("the specification is not installed")
    [found] = [
        each
        for each in elements(ElementTree.parse(path).getroot(), "section")
        if each.attrib["name"] == section
    ]
    names = [each.attrib["name"] for each in elements(found, "type")]
    for number, name in enumerate(names, first):
        title = AMQP_1_0[f"{above}.{number}"].lower().replace(" ", "-")
        assert title == TITLES.get(name, name)


def test_marks_are_found_wherever_they_stand() -> None:
    source = """
pytestmark = pytest.mark.spec("a", "1")

@pytest.mark.spec("b", "2")
@pytest.mark.parametrize("x", [pytest.param(1, marks=pytest.mark.spec("b", "3"))])
def test_one(x): ...

@pytest.mark.spec("amqp-1.0", "1.2.*")
def test_other(): ...
"""
    assert list(marks_in(ast.parse(source), "t.py")) == [
        Mark("a", "1", "t.py"),
        Mark("b", "2", "t.py::test_one"),
        Mark("b", "3", "t.py::test_one"),
        *(Mark("amqp-1.0", f"1.2.{number}", "t.py::test_other") for number in range(1, 5)),
    ]


def test_a_mark_that_is_computed_is_an_error() -> None:
    with pytest.raises(ValueError, match="malformed"):
        list(marks_in(ast.parse("pytestmark = pytest.mark.spec('a', clause)"), "t.py"))


def test_the_report_has_a_line_for_each_clause() -> None:
    found = [Mark("wsb-1.0", "2.1", "t.py::test_one"), Mark("wsb-1.0", "2.1", "t.py::test_two")]
    head, first, *others = report("wsb-1.0", found)

    assert head == "wsb-1.0: 9 clauses, 8 of them without tests"
    assert first.split() == ["2.1", "Opening", "a", "WebSocket", "Connection", "2"]
    assert others[0].endswith("-  NO TEST")
    assert others[-2].endswith("-  the broker redirects nobody")


def test_the_tests_of_one_clause_are_printed(capsys: pytest.CaptureFixture[str]) -> None:
    main(["amqp-1.0", "2.6.8"])
    output = capsys.readouterr().out.splitlines()

    assert "2.6.8    tests/conformance/test_amqp10_credit.py::test_a_single_message_at_a_time" in output
    assert all(line.startswith("2.6.8 ") for line in output)
