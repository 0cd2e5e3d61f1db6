"""Every change is appended to the log before it is made; without the append nothing changes."""

from collections.abc import Callable

import pytest

from broker.auth.passwords import Password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.errors import PreconditionFailed
from broker.core.policies.policy import Policy
from broker.core.ports import MessageStore
from tests.support.core.topology import definitions_of, new_broker

Do = Callable[[Broker, Users], object]


class ChokingStore(MessageStore):
    """A store that accepts records until a test makes it fail."""

    def __init__(self) -> None:
        super().__init__()
        self.chokes = False

    def append_definition(self, change: dict[str, object]) -> None:
        if self.chokes:
            raise ValueError("too much")


@pytest.mark.parametrize(
    "do",
    [
        lambda broker, users: broker.declare_vhost("new"),
        lambda broker, users: broker.limit_vhost("/", 1, 1),
        lambda broker, users: broker.describe_vhost("/", "d", ("t",), "quorum"),
        lambda broker, users: broker.parameters.set("p", 1),
        lambda broker, users: broker.vhosts["/"].policies.set(Policy("new", "", {"expires": 1})),
        lambda broker, users: broker.vhosts["/"].policies.delete("p"),
        lambda broker, users: broker.vhosts["/"].declarations.bind_exchange(
            "amq.fanout", "amq.topic", "new", {}
        ),
        lambda broker, users: broker.vhosts["/"].declarations.unbind_exchange(
            "amq.fanout", "amq.topic", "k", {}
        ),
        lambda broker, users: users.add("new", Password("h")),
        lambda broker, users: users.put("ann", Password("h2"), ("t",)),
        lambda broker, users: users.put("ann", None, ("t",), True),
        lambda broker, users: users.delete("ann"),
        lambda broker, users: users.permit("ann", "new", "", "", ""),
        lambda broker, users: users.forbid("ann", "/"),
        lambda broker, users: users.permit_topic("ann", "/", "new", "", ""),
        lambda broker, users: users.forget_topic("ann", "/"),
        lambda broker, users: users.set_limits("ann", {"max-channels": 1}),
    ],
)
def test_a_change_that_cannot_be_appended_is_not_made(do: Do) -> None:
    store = ChokingStore()
    broker, users = new_broker(store), Users(store)
    vhost = broker.declare_vhost("/")
    vhost.policies.set(Policy("p", "", {"max-length": 1}))
    vhost.declarations.bind_exchange("amq.fanout", "amq.topic", "k", {})
    users.add("ann", Password("h1"))
    users.permit("ann", "/", "", "", "")
    users.permit_topic("ann", "/", "x", "", "")
    before = definitions_of(broker) + definitions_of(users)
    store.chokes = True
    with pytest.raises(ValueError, match="too much"):
        do(broker, users)
    assert definitions_of(broker) + definitions_of(users) == before


@pytest.mark.parametrize(
    "do",
    [
        lambda broker: broker.declare_vhost("\ud800"),
        lambda broker: broker.parameters.set("\ud800", 1),
        lambda broker: broker.vhosts["/"].declarations.declare_queue("\ud800", True, None, False, {}),
        lambda broker: broker.vhosts["/"].declarations.declare_exchange(
            "\ud800", "direct", True, False, False, {}
        ),
        lambda broker: broker.vhosts["/"].declarations.bind_exchange("amq.direct", "amq.topic", "\ud800", {}),
    ],
)
def test_a_name_that_has_no_bytes_is_refused(do: Callable[[Broker], object]) -> None:
    broker = new_broker(MessageStore())
    broker.declare_vhost("/")
    before = definitions_of(broker)
    with pytest.raises(PreconditionFailed, match=r"'\\ud800' is not valid UTF-8"):
        do(broker)
    assert definitions_of(broker) == before
