"""The description of the topology in checkpoints."""

import json
from collections.abc import Iterator

import pytest

from broker.store.definition_text import CHANGES_MIN, STEP, DefinitionText

Change = dict[str, object]


class Topology:
    """A topology that counts its descriptions and the described objects."""

    def __init__(self, *changes: Change) -> None:
        self.changes = list(changes)
        self.asked = 0
        self.call_count = 0

    def describe(self) -> Iterator[list[Change]]:
        self.asked += 1
        for change in list(self.changes):
            self.call_count += 1
            yield [change]


def changes_in(text: DefinitionText) -> list[Change]:
    found = json.loads(b"[%s]" % text.text())
    assert isinstance(found, list)
    assert text.length == len(text.text()) + 1 if found else text.length == 0
    return found


def names(text: DefinitionText) -> str:
    return "".join(str(change["name"]) for change in changes_in(text))


def new_text(topology: Topology, objects: int = 2) -> DefinitionText:
    """Return a text that is described anew, in short steps, once more changes than objects were appended."""
    text = DefinitionText(topology.describe, changes_min=0, step=objects)
    text.text()
    return text


def named(*changes: str) -> list[Change]:
    return [{"name": name} for name in changes]


@pytest.mark.parametrize("before", [[], [{"a": 1}], [{"a": 1}, {"b": "é\udc80"}]])
def test_changes_follow_the_description(before: list[Change]) -> None:
    topology = Topology(*before)
    text = DefinitionText(topology.describe)
    text.add({"too": "early"})
    text.step()
    assert topology.asked == text.length == 0
    assert changes_in(text) == before
    assert text.add({"c": 3}) == b'{"c":3}'
    assert changes_in(text) == [*before, {"c": 3}]
    text.add({"d": 4})
    text.add({"e": 5})
    assert changes_in(text) == changes_in(text) == [*before, {"c": 3}, {"d": 4}, {"e": 5}]
    assert topology.asked == 1


def test_definitions_are_encoded_again_when_the_changes_are_longer() -> None:
    topology = Topology({"name": "n" * 3 * CHANGES_MIN})
    text = DefinitionText(topology.describe)
    text.text()
    for number in range(1, 4):
        text.add({"text": "t" * CHANGES_MIN})
        topology.changes.append({"number": number})
        text.step()
        assert topology.asked == (1 if number < 3 else 2)
    assert [list(change) for change in changes_in(text)] == [["name"], ["number"], ["number"], ["number"]]
    text.step()
    assert topology.asked == 2


def test_few_changes_start_no_new_description() -> None:
    topology = Topology({"name": "a"})
    text = DefinitionText(topology.describe)
    text.text()
    text.add({"name": "b" * (CHANGES_MIN // 2)})
    text.step()
    text.add({"name": "c" * (CHANGES_MIN // 2 - 30)})
    text.step()
    assert topology.asked == 1


def test_the_old_text_is_valid_until_the_new_description_is_complete() -> None:
    topology = Topology(*named(*"abcde"))
    text = new_text(topology)
    for name in "uvwxyz":
        text.add({"name": name})
    topology.changes = named(*"fghij")
    for done, objects in ((False, 2), (False, 4), (True, 5)):
        text.step()
        assert topology.call_count == 5 + objects
        assert names(text) == ("fghij" if done else "abcdeuvwxyz")
    text.step()
    assert (topology.asked, topology.call_count) == (2, 10)


def test_changes_during_a_description_keep_their_order() -> None:
    topology = Topology(*named(*"abcde"))
    text = new_text(topology)
    for name in "uvwxyz":
        text.add({"name": name})
    text.step()
    text.add({"name": "1"})
    assert names(text) == "abcdeuvwxyz1"
    text.step()
    text.add({"name": "2"})
    text.add({"name": "3"})
    text.step()
    assert names(text) == "ab1cd23e"
    text.add({"name": "4"})
    assert names(text) == "ab1cd23e4"


def test_a_step_that_ends_with_the_last_object_is_followed_by_an_empty_one() -> None:
    topology = Topology(*named(*"abcd"))
    text = new_text(topology)
    for name in "vwxyz":
        text.add({"name": name})
    for expected in ("abcdvwxyz", "abcdvwxyz", "abcd"):
        text.step()
        assert names(text) == expected


def test_however_much_changes_meanwhile_the_description_comes_to_an_end() -> None:
    """Changes that come faster than the steps make these longer: the text has a limit."""
    topology = Topology(*named(*[f"object {number:4}" for number in range(1000)]))
    text = new_text(topology)
    described = longest = text.length
    for number in range(20_000):
        text.add({"name": f"change {number:5}"})
        if number % 50 == 0:  # 25 times as many as a step would describe
            text.step()
        longest = max(longest, text.length)
    assert topology.asked > 5
    assert described < longest < 10 * described


def test_objects_without_a_change_count_as_work_of_a_step() -> None:
    looked = 0

    def describe() -> Iterator[list[Change]]:
        nonlocal looked
        for number in range(10 * STEP):
            looked = number + 1
            yield []
        yield named("a", "b")

    text = DefinitionText(describe, changes_min=0)
    assert names(text) == "ab"
    text.add({"name": "c" * 50})
    for _ in range(10):
        before, looked = looked, 0
        text.step()
        assert looked <= before + STEP
    assert looked == 10 * STEP
    assert len(changes_in(text)) == 3
    text.step()
    assert names(text) == "ab"


def test_invalid_json_changes_nothing() -> None:
    text = DefinitionText(Topology({"a": 1}).describe)
    text.text()
    with pytest.raises(TypeError):
        text.add({"b": b"bytes"})
    assert changes_in(text) == [{"a": 1}]
