"""Selectors, exchanges and groups that read messages of AMQP 1.0 and of AMQP 0-9-1."""

from uuid import UUID

import pytest

from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.amqp10 import View10
from broker.adapters.formats.either import SelectorFilter, view_of
from broker.core.entries.entry import QueueEntry
from broker.core.message import NOWHERE, Message
from broker.core.ports import MessageStore
from broker.core.publishing.publisher import ROUTED
from broker.core.queues.groups import Groups
from broker.core.selector.selector import Selector
from protocol.amqp10.types import Symbol, Timestamp, Uint
from tests.support.amqp10.contents import content10
from tests.support.core.topology import add_exchange, add_queue, content_of, new_vhost

ID = UUID("12345678-9abc-def0-1234-56789abcdef0")
CONTENT = content10(
    {"x-basic-type": "t", "x-a": [1], "x-n": Uint(9), "other": 1},
    {
        "kind": "a",
        "level": 5,
        "share": 0.5,
        "on": True,
        "at": Timestamp(1500),
        "uuid": ID,
        "void": None,
        "subject": "mine",
        "raw": b"a",
    },
    durable=True,
    ttl=77,
    message_id=ID,
    user_id=b"guest",
    to="/queues/q",
    subject="s",
    correlation_id="c" * 300,
    content_type=Symbol("text/plain"),
    creation_time=Timestamp(1_700_000_000_000),
    absolute_expiry_time=Timestamp(9),
    group_id="g",
    group_sequence=Uint(2**32 - 1),
)


class LoadingStore(MessageStore):
    """A store with a single content."""

    def __init__(self, content: bytes) -> None:
        super().__init__()
        self.content = content

    def load(self, message: Message) -> bytes:
        return self.content


@pytest.mark.parametrize(
    "text",
    [
        "kind = 'a'",
        "level = 5 AND level < 5.5 AND kind LIKE 'a%'",
        "level = 5",
        "share = 0.5",
        '"on" = TRUE',
        "at = 1500",
        f"uuid = '{ID}'",
        "void IS NULL AND nothing IS NULL",
        "NOT raw = 'a' AND raw IS NOT NULL",
        '"x-n" = 9',
        '"other" IS NULL',
        "subject = 'mine'",
        "properties.subject = 's' AND properties.to = '/queues/q'",
        "properties.group_id = 'g' AND properties.group_sequence = 4294967295",
        "properties.absolute_expiry_time = 9 AND properties.creation_time = 1700000000000",
        "properties.correlation_id LIKE 'ccc%' AND JMSCorrelationID IS NOT NULL",
        f"JMSMessageID = 'urn:uuid:{ID}' AND properties.message_id = JMSMessageID",
        "JMSDeliveryMode = 'PERSISTENT' AND delivery_mode = 2 AND properties.delivery_mode = 2",
        "JMSPriority = 4 AND priority IS NULL AND properties.priority IS NULL",
        "JMSTimestamp = 1700000000000 AND timestamp = JMSTimestamp",
        "JMSType = 't' AND type = 't'",
        "JMSXGroupID = 'g' AND JMSXGroupSeq = -1 AND JMSXUserID = 'guest' AND user_id = 'guest'",
        "JMSXOther IS NULL AND properties.other IS NULL AND to IS NULL",
        "expiration = '77' AND app_id = 'g' AND content_type = 'text/plain'",
    ],
)
def test_selectors_that_are_true(text: str) -> None:
    selector = Selector(text)
    assert selector.matches(View10(CONTENT))
    entry = QueueEntry(Message(NOWHERE, CONTENT, 4, True, 0), 1)
    assert SelectorFilter(selector, MessageStore()).passes(entry)
    entry.message.content = None
    assert SelectorFilter(selector, LoadingStore(CONTENT)).passes(entry)


@pytest.mark.parametrize(
    "text", ["kind = 'b'", "level = 6", "level = 'a'", "void = 1", "JMSPriority = 5", "raw = 'a'"]
)
def test_selectors_that_are_not(text: str) -> None:
    entry = QueueEntry(Message(NOWHERE, CONTENT, 4, True, 0), 1)
    assert not SelectorFilter(Selector(text), MessageStore()).passes(entry)


def test_the_type_of_jms_is_the_subject_if_nothing_else_is() -> None:
    view = View10(content10(subject="s", priority=7))
    assert (view.lookup("JMSType"), view.lookup("type"), view.lookup("JMSPriority")) == ("s", None, 7)
    assert View10(content10(application={"JMSType": "mine"}, subject="s")).lookup("JMSType") == "mine"


def test_a_single_filter_matches_messages_of_both_protocols() -> None:
    sieve = SelectorFilter(Selector("kind = 'a' AND JMSDeliveryMode = 'PERSISTENT'"), MessageStore())
    contents = [
        content_of(headers={"kind": "a"}, delivery_mode=2),
        content_of(headers={"kind": "b"}, delivery_mode=2),
        content10(application={"kind": "a"}, durable=True),
        content10(application={"kind": "a"}),
        content10(application={"kind": "b"}, durable=True),
        content_of(headers={"kind": "a"}, delivery_mode=1),
    ]
    entries = [QueueEntry(Message(NOWHERE, content, 0, True, 0), 1) for content in contents]
    assert [sieve.passes(entry) for entry in entries] == [True, False, True, False, False, False]


@pytest.mark.parametrize(
    ("value", "passes"), [(5, True), (5.0, True), (6, False), ("a long text", False), (5.5, False)]
)
def test_an_integer_is_asked_of_a_header_of_any_type(value: int | float | str, passes: bool) -> None:
    entry = QueueEntry(Message(NOWHERE, content_of(headers={"level": value}), 0, True, 0), 1)
    assert SelectorFilter(Selector("level = 5"), MessageStore()).passes(entry) is passes


def test_views_are_of_the_protocol_that_the_content_is_of() -> None:
    store = LoadingStore(CONTENT)
    assert isinstance(view_of(Message(NOWHERE, content_of(), 0, False, 0), store), ContentView)
    assert isinstance(view_of(Message(NOWHERE, content10(), 4, False, 0), store), View10)
    assert view_of(Message(NOWHERE, None, 4, False, 0), store).property("user_id") == "guest"


def test_a_headers_exchange_routes_both_protocols_alike() -> None:
    vhost = new_vhost()
    add_exchange(vhost, "h", "headers")
    wanted: dict[str, dict[str, object]] = {
        "all": {"x-match": "all", "kind": "a", "level": 5},
        "any": {"x-match": "any", "kind": "b", "level": 5},
        "with-x": {"x-match": "all-with-x", "kind": "a", "x-n": 9},
        "without-x": {"x-match": "all", "kind": "a", "x-n": "ignored"},
        "selected": {"x-match": "all", "x-filter-jms-selector": "level > 4"},
        "other": {"x-match": "any", "kind": "c"},
    }
    for name, arguments in wanted.items():
        add_queue(vhost, name)
        vhost.declarations.bind_queue(name, "h", "", arguments)
    route = vhost.publisher.route("h", "")
    views = 0
    for content in (
        content10({"x-n": Uint(9)}, {"kind": "a", "level": 5}),
        content_of(headers={"kind": "a", "level": 5, "x-n": 9}),
    ):
        message = Message(route.address, content, 0, False, 0)
        assert (
            vhost.publisher.publish_by_message(route, message, [""], view_of(message, vhost.store)) is ROUTED
        )
        views += 1
    ready = {name: int(queue.ready) for name, queue in vhost.topology.queues.items()}
    assert ready == {name: 0 if name == "other" else views for name in wanted}


def test_groups_of_both_protocols_are_the_same() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-group-kind": "sticky"})
    route = vhost.publisher.route("", "q")
    for content in (
        content10(group_id="g"),
        content_of(headers={"x-group-id": "g"}),
        content10(group_id="h"),
        content10(),
    ):
        vhost.publisher.publish(route, Message(route.address, content, 0, False, 0))
    groups = queue.discipline
    assert isinstance(groups, Groups)
    assert sorted(groups.by_key) == ["g", "h"]
