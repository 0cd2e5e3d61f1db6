"""What checkpoints say of the topology."""

import json

import pytest

from broker.store.definition_text import CHANGES_MIN, DefinitionText

Change = dict[str, object]


class Topology:
    """What there is, and how often somebody wanted to know."""

    def __init__(self, *changes: Change) -> None:
        self.changes = list(changes)
        self.asked = 0

    def describe(self) -> list[Change]:
        self.asked += 1
        return list(self.changes)


def told(text: DefinitionText) -> list[Change]:
    found = json.loads(b"[%s]" % text.text())
    assert isinstance(found, list)
    return found


@pytest.mark.parametrize("before", [[], [{"a": 1}], [{"a": 1}, {"b": "é\udc80"}]])
def test_changes_follow_the_description(before: list[Change]) -> None:
    topology = Topology(*before)
    text = DefinitionText(topology.describe)
    text.add({"too": "early"})
    assert told(text) == before
    assert text.add({"c": 3}) == b'{"c":3}'
    assert told(text) == [*before, {"c": 3}]
    text.add({"d": 4})
    text.add({"e": 5})
    assert told(text) == told(text) == [*before, {"c": 3}, {"d": 4}, {"e": 5}]
    assert topology.asked == 1


def test_all_is_described_anew_when_the_changes_have_become_longer() -> None:
    topology = Topology({"name": "n" * 3 * CHANGES_MIN})
    text = DefinitionText(topology.describe)
    text.text()
    for number in range(1, 5):
        topology.changes.append({"number": number})
        text.add({"text": "t" * CHANGES_MIN})
        text.text()
        assert topology.asked == (1 if number < 3 else 2)
    assert [list(change) for change in told(text)] == [["name"], ["number"], ["number"], ["number"], ["text"]]


def test_what_is_no_json_changes_nothing() -> None:
    text = DefinitionText(Topology({"a": 1}).describe)
    text.text()
    with pytest.raises(TypeError):
        text.add({"b": b"bytes"})
    assert told(text) == [{"a": 1}]
