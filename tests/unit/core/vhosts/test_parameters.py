"""Parameters of components: stored, notified, recovered, and deleted with their virtual host."""

import pytest

from broker.core.errors import NotFound, PreconditionFailed, StoreFailed
from broker.core.vhosts.vhost import VirtualHost
from tests.support.core.topology import RecordingStore, definitions_of, new_broker, rebuilt

VALUE = {"uri": "amqp://", "n": 1}


def test_parameters_are_stored_and_watchers_are_notified() -> None:
    store = RecordingStore()
    broker = new_broker(store)
    parameters = broker.declare_vhost("/").parameters
    seen: list[tuple[str, str, str]] = []

    def watch(vhost: VirtualHost, component: str, name: str) -> None:
        seen.append((vhost.name, component, name))

    broker.parameter_watchers.append(watch)
    parameters.set("shovel", "b", VALUE)
    parameters.set("other", "a", True)
    parameters.set("other", "a", True)
    parameters.set("other", "a", 1)
    assert seen == [("/", "shovel", "b"), ("/", "other", "a"), ("/", "other", "a")], "true is not 1"
    assert parameters.items() == [("other", "a", 1), ("shovel", "b", VALUE)]
    assert parameters.items("shovel") == [("shovel", "b", VALUE)]
    parameters.delete("other", "a")
    assert parameters.get("other", "a") is None
    assert not parameters.has("other", "a")
    assert [change["kind"] for change in store.changes[-2:]] == ["component", "component.delete"]
    assert seen[-1] == ("/", "other", "a")


def test_parameters_are_recovered_and_end_with_their_virtual_host() -> None:
    broker = new_broker(RecordingStore())
    broker.declare_vhost("v").parameters.set("shovel", "s", VALUE)
    again = rebuilt(definitions_of(broker))
    assert again.vhosts["v"].parameters.items() == [("shovel", "s", VALUE)]
    broker.vhosts["v"].parameters.delete("shovel", "s")
    assert rebuilt(definitions_of(broker)).vhosts["v"].parameters.items() == []
    broker.vhosts["v"].parameters.set("shovel", "s", VALUE)
    broker.delete_vhost("v")
    assert broker.declare_vhost("v").parameters.items() == []


def test_refusals_change_nothing() -> None:
    store = RecordingStore()
    parameters = new_broker(store).declare_vhost("/").parameters
    with pytest.raises(PreconditionFailed, match="a parameter of component 'shovel' needs a name"):
        parameters.set("shovel", "", VALUE)
    with pytest.raises(PreconditionFailed, match="parameter name is 256 bytes long"):
        parameters.set("shovel", "n" * 256, VALUE)
    with pytest.raises(NotFound, match="no parameter 's' of component 'shovel' in vhost '/'"):
        parameters.delete("shovel", "s")
    store.failure = "disk full"
    with pytest.raises(StoreFailed, match="disk full"):
        parameters.set("shovel", "s", VALUE)
    assert parameters.items() == []


@pytest.mark.parametrize("change", [{"kind": "component.other"}, {"kind": "component", "name": 5}])
def test_a_malformed_change_is_refused(change: dict[str, object]) -> None:
    broker = new_broker()
    broker.declare_vhost("/")
    with pytest.raises(ValueError, match="definition"):
        broker.apply({"vhost": "/", "component": "shovel"} | change)
