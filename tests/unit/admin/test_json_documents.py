"""Foreign JSON: accepted documents can be written again, and errors name the place."""

import json
from collections.abc import Generator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from broker.admin.json_documents import LEVELS_MAX, JsonError, read_field_table, read_json, read_json_steps
from broker.core.errors import PreconditionFailed

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda deeper: st.lists(deeper) | st.dictionaries(st.text(), deeper),
)


def all_steps(steps: Generator[None, None, Any]) -> tuple[Any, int]:
    """Return the value of a JSON text, and the number of steps in which it was read."""
    taken = 0
    while True:
        try:
            next(steps)
        except StopIteration as end:
            return end.value, taken
        taken += 1


def problem(text: str | bytes) -> str:
    """Return the error of a JSON text; both ways of reading it must raise."""
    with pytest.raises(JsonError) as whole:
        read_json(text)
    with pytest.raises(JsonError):
        all_steps(read_json_steps(text))
    return str(whole.value)


@given(VALUES, st.booleans(), st.sampled_from([None, 1]))
def test_documents_written_by_python_are_read(value: Any, ascii_only: bool, indent: int | None) -> None:
    text = json.dumps(value, ensure_ascii=ascii_only, indent=indent)
    assert read_json(text) == read_json(text.encode()) == value
    assert all_steps(read_json_steps(text))[0] == value


@given(st.text(alphabet='{}[]:,"\\ud8a0 1eN-.tru', max_size=30))
def test_reading_json_in_steps_equals_reading_at_once(text: str) -> None:
    try:
        expected = read_json(text)
    except JsonError:
        with pytest.raises(JsonError):
            all_steps(read_json_steps(text))
    else:
        assert all_steps(read_json_steps(text))[0] == expected


def test_members_and_elements_are_steps() -> None:
    document = {"a": list(range(100)), "b": {"c": list(range(100))}, "d": []}
    assert all_steps(read_json_steps(json.dumps(document))) == (document, 103)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (r'{"a": [0, {"b-c": "\ud800"}]}', r"a[1].b-c is not valid UTF-8: '\ud800'"),
        (r'{"a": "x\uDC00"}', r"a is not valid UTF-8: 'x\udc00'"),
        (r'{"\ud83d": 1}', r"a name is not valid UTF-8: '\ud83d'"),
        (r'{"v": {"\udfff": 1}}', r"a name in v is not valid UTF-8: '\udfff'"),
        (r'"\uD83D"', r"the value is not valid UTF-8: '\ud83d'"),
        ('{"v": NaN}', "v is nan"),
        ('{"v": [-Infinity]}', "v[0] is -inf"),
        ('{"v": {"w": 1e999}}', "v.w is inf, a number that JSON does not have"),
        ("1e999", "the value is inf"),
    ],
)
def test_values_that_cannot_be_stored_are_refused_by_their_place(text: str, place: str) -> None:
    assert place in problem(text)


@pytest.mark.parametrize(
    ("text", "value"),
    [
        (r'{"a": "\ud83d\ude00"}', {"a": "😀"}),
        (r'{"a": "\\ud800"}', {"a": r"\ud800"}),
        ("\ufeff{}", {}),
        ('{"NaN": 1e99}', {"NaN": 1e99}),
    ],
)
def test_valid_values_that_look_invalid_are_read(text: str, value: Any) -> None:
    assert read_json(text) == value
    assert all_steps(read_json_steps(text))[0] == value


@pytest.mark.parametrize(
    "text",
    [
        "",
        "{",
        '{"a"',
        '{"a":',
        '{"a":1',
        '{"a":1,}',
        '{"a":[1',
        '{"a":[1,]}',
        '{"a":[1}',
        "{1:1}",
        "{} {}",
        "[1] 2",
        '{"a":[1]]}',
        b"\xff",
        '"\ud800"',
        "1" * 5000,
    ],
)
def test_invalid_json_is_refused(text: str | bytes) -> None:
    assert problem(text).startswith("not JSON: ")


def test_json_of_invalid_octets_names_their_place() -> None:
    assert problem(b'{"a": "\xff"}') == "not JSON: not valid UTF-8 at byte 7"


def nested(levels: int, *marks: str) -> str:
    """Objects and lists within each other: `marks` are their beginnings and ends."""
    begin, end = marks
    return begin * (levels - 1) + "[]" + end * (levels - 1)


@pytest.mark.parametrize("marks", [("[", "]"), ('{"a": [1, "[[", 2], "b": ', "}"), ('{"a": [', "]}")])
def test_documents_have_128_levels_and_no_more(marks: tuple[str, str]) -> None:
    doubled = len(marks[1])
    text = nested((LEVELS_MAX - 1) // doubled + 1, *marks)
    assert all_steps(read_json_steps(text))[0] == read_json(text)
    for levels in (LEVELS_MAX // doubled + 2, 400, 100_000):
        assert problem(nested(levels, *marks)) == "the JSON document is nested more than 128 levels deep"
    assert problem("[" * 100_000) == problem('{"a": ' + "[" * 100_000)


def test_many_values_side_by_side_are_not_deep() -> None:
    document = {"a": [{"b": [[]]}] * 1000, "c": {"d": [{}] * 1000}}
    text = json.dumps(document)
    assert read_json(text) == all_steps(read_json_steps(text))[0] == document


def test_arguments_have_100_levels_and_no_more() -> None:
    table = {"a": json.loads(nested(99, "[", "]"))}
    assert read_field_table(table, "queue 'q'") == table
    with pytest.raises(
        PreconditionFailed, match="the arguments of queue 'q' are nested more than 100 levels"
    ):
        read_field_table({"a": [table]}, "queue 'q'")
