"""The filters of a source: known and unknown ones, the answer about them, and matching messages."""

from datetime import UTC, datetime
from uuid import UUID

import pytest

from broker.adapters.amqp10.filters.source import (
    CRITERIA_MAX,
    DIRECT,
    HEADERS,
    TEXT_MAX,
    TOPIC,
    Binding,
    SourceFilters,
    filters_of,
)
from broker.adapters.formats.either import SelectorFilter
from broker.core.entries.entry import QueueEntry
from broker.core.message import NOWHERE, Address, Message
from broker.core.ports import MessageStore
from broker.core.queues.attach import attach
from broker.core.queues.consumer import QueueConsumer
from broker.core.selector.selector import Selector
from protocol.amqp10.composing import decode_composite, encode_composite
from protocol.amqp10.composites import Source
from protocol.amqp10.conditions import INVALID_FIELD, PeerError
from protocol.amqp10.encoding import encode
from protocol.amqp10.types import Array, Char, Described, Map, Symbol, Timestamp, Ubyte, Uint, Ulong
from tests.support.amqp10.contents import content10
from tests.support.core.topology import KeepingTarget, content_of, new_vhost, pull

SELECTOR = Symbol("apache.org:selector-filter:string")
SQL = Symbol("amqp:sql-filter")
PROPERTIES = Symbol("amqp:properties-filter")
APPLICATION = Symbol("amqp:application-properties-filter")
NO_LOCAL = Symbol("apache.org:no-local-filter:list")


def read(**filters: object) -> SourceFilters:
    """The filters as they come over the wire; their names have underscores here."""
    return filters_of(received({name.replace("_", "-"): value for name, value in filters.items()}), lambda: 0)


def received(filters: dict[str, object]) -> dict[str, object]:
    source, _ = decode_composite(encode_composite(Source(filter=filters)))
    assert isinstance(source, Source)
    assert source.filter is not None
    return dict(source.filter)


def passes(filters: SourceFilters, content: bytes) -> bool:
    entry_filter = filters.entry_filter(MessageStore())
    return entry_filter is None or entry_filter.passes(QueueEntry(Message(NOWHERE, content, 4, False, 0), 1))


@pytest.mark.parametrize(
    ("symbol", "number", "value"),
    [
        (SELECTOR, 0x468C00000004, "kind = 'a'"),
        (SQL, 0x120, "kind = 'a'"),
        (APPLICATION, 0x174, {"kind": "a"}),
    ],
)
def test_a_filter_is_known_by_either_descriptor(symbol: Symbol, number: int, value: object) -> None:
    for descriptor in (symbol, Ulong(number), str(symbol)):
        filters = read(mine=Described(descriptor, value))
        assert passes(filters, content10(application={"kind": "a"}))
        assert passes(filters, content_of(headers={"kind": "a"}))
        assert not passes(filters, content10(application={"kind": "b"}))
        assert not passes(filters, content_of(headers={"kind": "b"}))


def test_a_filter_of_properties_by_either_descriptor() -> None:
    for descriptor in (PROPERTIES, Ulong(0x173)):
        filters = read(mine=Described(descriptor, {Symbol("group-id"): "&p:g"}))
        assert passes(filters, content10(group_id="g1"))
        assert passes(filters, content_of(app_id="g1"))
        assert not passes(filters, content10(group_id="h"))
        assert not passes(filters, content_of())


def test_all_of_several_have_to_let_a_message_pass() -> None:
    filters = read(
        sel=Described(SELECTOR, "kind = 'a'"),
        sql=Described(SQL, "p.subject LIKE 's%'"),
        props=Described(PROPERTIES, {Symbol("to"): "q"}),
        app=Described(APPLICATION, {"level": Ubyte(5)}),
    )
    whole: dict[str, object] = {"kind": "a", "level": 5}
    assert passes(filters, content10(application=whole, subject="s", to="q"))
    assert not passes(filters, content10(application={**whole, "kind": "b"}, subject="s", to="q"))
    assert not passes(filters, content10(application={**whole, "level": 6}, subject="s", to="q"))
    assert not passes(filters, content10(application=whole, subject="t", to="q"))
    assert not passes(filters, content10(application=whole, subject="s", to="r"))
    assert not passes(filters, content_of(headers=whole))
    entry_filter = filters.entry_filter(MessageStore())
    assert entry_filter is not None
    assert entry_filter.demands == [("kind", "a"), ("level", 5)]


def test_equal_filters_have_equal_keys_and_a_selector_that_of_amqp_091() -> None:
    def key(**filters: object) -> str:
        entry_filter = read(**filters).entry_filter(MessageStore())
        assert entry_filter is not None
        return entry_filter.key

    selector, sql = Described(SELECTOR, "a=1"), Described(SQL, "a=1")
    assert key(x=selector) == key(y=selector, z=Described(Ulong(0x468C00000004), "(a) = 1"))
    assert key(x=selector) == SelectorFilter(Selector("a = 1"), MessageStore()).key
    assert key(x=selector) != key(x=sql)
    assert key(x=selector, y=sql) == key(a=sql, b=selector)
    assert len({key(x=selector, y=sql), key(x=selector), key(x=sql)}) == 3


def test_no_filters_match_all_messages() -> None:
    for filters in (
        filters_of(None, lambda: 0),
        read(),
        read(spaces=Described(SELECTOR, "  ")),
        read(offset=Described(Symbol("rabbitmq:stream-offset-spec"), Symbol("first"))),
    ):
        assert filters.entry_filter(MessageStore()) is None
    assert filters_of(None, lambda: 0).in_force() is None
    assert read().in_force() == {}


def test_only_known_filters_are_in_force() -> None:
    filters = read(
        offset=Described(Symbol("rabbitmq:stream-offset-spec"), Symbol("first")),
        unfiltered=Described(Symbol("rabbitmq:stream-match-unfiltered"), True),
        xquery=Described(Ulong(0x468C00000005), "a"),
        number=Described(Ulong(0x999), "a"),
        odd=Described([1], "a"),
        true=Described(True, "a"),
        bare="a = 1",
        nothing=None,
        sel=Described(SELECTOR, "a = 1"),
    )
    assert filters.in_force() == {"sel": Described(SELECTOR, "a = 1")}


def test_effective_filters_are_echoed_unchanged() -> None:
    given: dict[str, object] = {
        "selector": Described(SELECTOR, "a = 1"),
        "jms-selector": Described(Ulong(0x468C00000004), "b = 1"),
        "props": Described(
            Ulong(0x173),
            {Symbol("message-id"): Ulong(5), Symbol("creation-time"): Timestamp(1), Symbol("to"): "q"},
        ),
        "app": Described(
            APPLICATION,
            {"u": Ubyte(1), "i": Uint(1), "b": b"x", "s": Symbol("x"), "n": None, "id": UUID(int=5)},
        ),
    }
    raw = encode(Map([(Symbol(name), value) for name, value in given.items()]))
    in_force = filters_of(received(given), lambda: 0).in_force()
    assert raw in encode_composite(Source(filter=in_force))


def test_no_local_is_in_force_if_it_is_followed() -> None:
    filters = read(sel=Described(SELECTOR, "a = 1"), local=Described(NO_LOCAL, []))
    assert filters.no_local
    assert filters.in_force() == {"sel": Described(SELECTOR, "a = 1")}
    assert list(filters.in_force(no_local=True) or {}) == ["sel", "local"]
    assert not read(sel=Described(SELECTOR, "a = 1")).no_local
    assert read(local=Described(Ulong(0x468C00000003), [])).criterion is None


@pytest.mark.parametrize(
    ("descriptor", "value", "binding"),
    [
        (Ulong(0x468C00000000), "k", Binding(DIRECT, "k", {})),
        (Symbol("apache.org:legacy-amqp-direct-binding:string"), "k", Binding(DIRECT, "k", {})),
        (Ulong(0x468C00000001), "a.#", Binding(TOPIC, "a.#", {})),
        (Symbol("apache.org:legacy-amqp-topic-binding:string"), "a.#", Binding(TOPIC, "a.#", {})),
        (
            Ulong(0x468C00000002),
            {"x-match": "any", "a": Uint(5), "b": True, "c": 1.5, "d": Timestamp(1000), "e": None},
            Binding(
                HEADERS,
                "",
                {
                    "x-match": "any",
                    "a": 5,
                    "b": True,
                    "c": 1.5,
                    "d": datetime.fromtimestamp(1, UTC),
                    "e": None,
                },
            ),
        ),
        (
            Symbol("apache.org:legacy-amqp-headers-binding:map"),
            {Symbol("a"): Symbol("b")},
            Binding(HEADERS, "", {"a": "b"}),
        ),
    ],
)
def test_bindings(descriptor: object, value: object, binding: Binding) -> None:
    filters = read(bind=Described(descriptor, value))
    assert filters.binding == binding
    assert {type(argument) for argument in binding.arguments.values()} == {
        type(argument) for argument in filters.binding.arguments.values()
    }
    assert filters.entry_filter(MessageStore()) is None
    assert filters.in_force() == {}
    assert list(filters.in_force(binding=True) or {}) == ["bind"]


TOPIC_BINDING = Ulong(0x468C00000001)
HEADERS_BINDING = Ulong(0x468C00000002)


@pytest.mark.parametrize(
    ("filters", "text"),
    [
        ({"sel": Described(SELECTOR, "a =")}, "filter 'sel': position 4: expected a value"),
        ({"sel": Described(SELECTOR, 5)}, "filter 'sel' is not a string"),
        ({"sel": Described(SELECTOR, None)}, "filter 'sel' is not a string"),
        ({"sel": Described(SELECTOR, Char("a"))}, "filter 'sel' is not a string"),
        ({"sel": Described(SELECTOR, "a" * 5000)}, "filter 'sel': 5000 characters, at most 4096"),
        ({"sql": Described(SQL, "")}, "filter 'sql': position 1: expected a value"),
        ({"sql": Described(SQL, b"a = 1")}, "filter 'sql' is not a string"),
        ({"p": Described(PROPERTIES, [])}, "filter 'p' is not a map"),
        (
            {"p": Described(PROPERTIES, {Symbol("group-id"): Uint(3)})},
            "filter 'p' 'group-id' is not a string",
        ),
        ({"a": Described(APPLICATION, {"k": "&k"})}, "filter 'a' 'k' begins with an &"),
        ({"b": Described(TOPIC_BINDING, "k" * 256)}, "filter 'b' is longer than 255 bytes"),
        ({"b": Described(TOPIC_BINDING, {})}, "filter 'b' is not a string"),
        ({"b": Described(HEADERS_BINDING, "a")}, "filter 'b' is not a map"),
        ({"b": Described(HEADERS_BINDING, {"a": [1]})}, "filter 'b' has 'a', which is not a simple value"),
        ({"b": Described(HEADERS_BINDING, {5: 1})}, "filter 'b' is not a string"),
        (
            {"b": Described(HEADERS_BINDING, Map([("a", 1), (Symbol("a"), 2)]))},
            "filter 'b' has 'a' twice",
        ),
        (
            {"b": Described(HEADERS_BINDING, {str(number): 1 for number in range(257)})},
            "filter 'b' has more than 256 fields",
        ),
        (
            {"b": Described(TOPIC_BINDING, "a"), "c": Described(TOPIC_BINDING, "b")},
            "filter 'c' is a second binding, and a source has only one",
        ),
        (
            {str(number): Described(SELECTOR, f"a = {number}") for number in range(CRITERIA_MAX + 1)},
            "filter '4' exceeds the limit of 4 conditions",
        ),
        ({"n" * 1000: Described(SELECTOR, "a =")}, "filter 'nnnn"),
        ({"a": Described(APPLICATION, {"k": Array(0x50, [1])})}, "filter 'a' 'k' is not a simple value"),
    ],
)
def test_an_invalid_known_filter_is_refused(filters: dict[str, object], text: str) -> None:
    with pytest.raises(PeerError) as caught:
        filters_of(received(filters), lambda: 0)
    assert caught.value.condition == INVALID_FIELD
    assert caught.value.text.startswith(text)
    assert len(caught.value.text) <= TEXT_MAX
    assert caught.value.info == {"field": "filter"}


def test_consumers_with_equal_filters_share_a_cursor_over_the_row_that_they_demand() -> None:
    vhost = new_vhost()
    queue = vhost.declarations.declare_queue("q", False, None, False, {"x-index": "kind"})
    contents = []
    for number in range(6):
        headers: dict[str, object] = {"kind": "ab"[number % 2], "level": number}
        content = content10(application=headers) if number < 3 else content_of(headers=headers)
        contents.append(content)
        queue.enqueue(Message(Address("", "q"), content, 4, False, 0))
    consumers = []
    takers = [KeepingTarget(), KeepingTarget()]
    for taker in takers:
        filters = read(sql=Described(SQL, "level > 1"), app=Described(APPLICATION, {"kind": "a"}))
        entry_filter = filters.entry_filter(vhost.store)
        consumers.append(QueueConsumer(taker, queue, entry_filter=entry_filter))
        attach(queue, consumers[-1])
    context = consumers[0].context
    assert consumers[1].context is context
    assert context.postings is not None
    assert [pull(consumer) for consumer in consumers] == [2, 0]
    assert [entry.message.content for entry in takers[0].taken] == contents[2::2]
    effort = context.effort
    assert pull(consumers[1]) == 0
    assert context.effort == effort, "nothing is looked at again"
