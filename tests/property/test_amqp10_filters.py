"""Filters of AMQP 1.0 against evaluators that are too simple to be wrong, for messages of both protocols."""

import contextlib
import re

from hypothesis import given, settings
from hypothesis import strategies as st

from broker.adapters.amqp10.filters.parts import Parts091, Parts10
from broker.adapters.amqp10.filters.properties import ApplicationPropertiesFilter, PropertiesFilter
from broker.adapters.amqp10.filters.source import SourceFilters, filters_of
from broker.adapters.amqp10.filters.sql import SqlFilter
from broker.adapters.formats.amqp091 import ContentView
from broker.adapters.formats.amqp10 import View10
from broker.core.entries.entry import QueueEntry
from broker.core.message import NOWHERE
from broker.core.message import Message as KeptMessage
from broker.core.ports import MessageStore
from protocol.amqp10.conditions import PeerError
from protocol.amqp10.types import Array, Described, Map, Symbol, Timestamp, Ulong
from protocol.conversion.to10 import content10 as converted
from tests.support.adapters.filtered_messages import (
    KEYS,
    TEXTS,
    Message,
    check_demands,
    literal,
    messages,
    old_properties,
    old_tables,
    properties,
    simple,
    view_of,
)
from tests.support.conversion.contents import content
from tests.support.effort import cases


@given(old_properties, old_tables)
def test_filters_see_messages_of_amqp_091_as_receivers_of_amqp_10_get_them(
    properties: dict[int, bytes], table: bytes | None
) -> None:
    made = content(properties, table)
    old = Parts091(ContentView(made))
    new = Parts10(View10(converted(made, "", "")))
    for place in range(13):
        assert same(old.property(place), new.property(place)), place
    for key in [*KEYS, *KEYS]:  # so many are looked for by themselves, and so many more among all
        assert same(old.application_property(key.encode()), new.application_property(key.encode())), key
    assert old.priority() == new.priority()
    assert old.durable() == new.durable()


def same(one: object, other: object) -> bool:
    return type(one) is type(other) and (one == other or one != one)


# -- properties and application properties

references = st.one_of(simple, st.sampled_from(["&p:", "&p:a", "&s:b", "&&a", "&s:\u00fc", Symbol("&p:a")]))


def suits(reference: object, value: object) -> bool:
    if value is None:
        return False
    if reference is None:
        return True
    if isinstance(reference, str):
        pattern = re.escape(reference)
        if type(reference) is str and reference.startswith("&"):
            rest = re.escape(reference[3:])
            pattern = {"&p": rest + ".*", "&s": ".*" + rest}.get(reference[:2], re.escape(reference[1:]))
        return isinstance(value, str) and re.fullmatch(pattern, value, re.DOTALL) is not None
    return sort(reference) == sort(value) and reference == value


def sort(value: object) -> str:
    if isinstance(value, int | float) and not isinstance(value, bool | Timestamp):
        return "number"
    return type(value).__name__


@given(st.dictionaries(st.sampled_from(KEYS), references, max_size=3), st.lists(messages, max_size=4))
def test_filters_of_application_properties(wanted: dict[str, object], several: list[Message]) -> None:
    with contextlib.suppress(ValueError):
        criterion = ApplicationPropertiesFilter(Map(list(wanted.items())))
        for message in several:
            expected = all(suits(reference, message["a"].get(key)) for key, reference in wanted.items())
            assert criterion.matches(view_of(message)) is expected
        return
    assert any(type(one) is str and re.match("&(?![&]|[ps]:)", one) for one in wanted.values())


@given(properties, st.lists(messages, max_size=4))
def test_filters_of_properties(wanted: dict[str, object], several: list[Message]) -> None:
    pairs = [(Symbol(name.replace("_", "-")), value) for name, value in wanted.items()]
    with contextlib.suppress(ValueError):
        criterion = PropertiesFilter(Map(list(pairs)))
        for message in several:
            expected = all(suits(reference, message["p"].get(name)) for name, reference in wanted.items())
            assert criterion.matches(view_of(message)) is expected
        return
    assert "&a" in wanted.values()


equalities = st.lists(
    st.tuples(st.sampled_from(KEYS), st.sampled_from([*TEXTS, 0, 1, 2, 65])), min_size=1, max_size=2
)


@given(equalities, messages, old_properties, old_tables)
def test_demanded_values_are_necessary(
    asked: list[tuple[str, object]], message: Message, properties: dict[int, bytes], table: bytes | None
) -> None:
    sql = SqlFilter(" AND ".join(f"[{key}] = {literal(value)}" for key, value in asked), lambda: 0)
    simple = [
        (key, "&" + value if isinstance(value, str) and value[:1] == "&" else value) for key, value in asked
    ]
    for criterion in (sql, ApplicationPropertiesFilter(dict(simple))):
        for view in (view_of(message), ContentView(content(properties, table))):
            check_demands(criterion.demands, criterion.matches(view), view)


# -- whatever a peer sends

keys = st.one_of(
    st.sampled_from(["to", "subject", "message-id", "user-id", "group-sequence", "x-match", "a"]), simple
)
values = st.recursive(
    st.one_of(simple, st.text(max_size=20), st.sampled_from(["a = 1", "p.to = 'a'", "a ="])),
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.lists(st.tuples(keys, inner), max_size=4).map(Map),
        st.tuples(inner, inner).map(lambda both: Described(*both)),
        st.lists(st.integers(0, 255), max_size=2).map(lambda items: Array(0x50, list(items))),
    ),
    max_leaves=8,
)
descriptors = st.one_of(
    st.sampled_from([0x468C00000000 + number for number in range(5)] + [0x120, 0x173, 0x174]).map(Ulong),
    st.sampled_from(["apache.org:selector-filter:string", "amqp:properties-filter"]).map(Symbol),
    values,
)
filters = st.dictionaries(
    st.text(max_size=10),
    st.one_of(values, st.tuples(descriptors, values).map(lambda both: Described(*both))),
    max_size=5,
)


@settings(max_examples=cases(300))
@given(filters, messages, old_properties, old_tables)
def test_random_filters_are_refused_or_match_as_they_demand(
    given: dict[str, object], message: Message, properties: dict[int, bytes], table: bytes | None
) -> None:
    infos: list[object] = []
    read = SourceFilters()
    try:
        read = filters_of(given, lambda: 0)
    except PeerError as error:
        infos.append(error.info)
    if infos:
        assert infos == [{"field": "filter"}]
        return
    in_force = read.in_force(binding=True, no_local=True)
    assert in_force is not None
    assert all(in_force[name] is given[name] for name in in_force)
    if read.criterion is not None:
        entry_filter = read.entry_filter(MessageStore())
        assert entry_filter is not None
        for view in (view_of(message), ContentView(content(properties, table))):
            matches = read.criterion.matches(view)
            check_demands(read.criterion.demands, matches, view)
            entry = QueueEntry(KeptMessage(NOWHERE, view.content, 4, False, 0), 1)
            assert entry_filter.passes(entry) == matches
