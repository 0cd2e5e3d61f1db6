"""Global parameters: values of any JSON type."""

import pytest

from tests.support.core.topology import RecordingStore, new_broker


@pytest.mark.parametrize(("old", "new"), [(1, True), (True, 1), (0, False), (1, 1.0), ([1], [True])])
def test_a_value_of_another_type_is_another_value(old: object, new: object) -> None:
    store = RecordingStore()
    broker = new_broker(store)
    broker.parameters.set("p", old)
    broker.parameters.set("p", new)
    assert repr(broker.parameters.get("p")) == repr(new)
    assert repr(store.changes[-1]["value"]) == repr(new)


def test_the_same_value_is_no_change() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    broker.parameters.set("p", {"a": [1], "b": None})
    before = list(store.changes)
    broker.parameters.set("p", {"b": None, "a": [1]})
    assert store.changes == before
