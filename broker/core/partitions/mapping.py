"""The mapping of a partitioned queue: the member of each message, by its key or by the members' selectors.

[Bernstein and Newcomer 4.5, parameter-based routing]
"""

from __future__ import annotations

import json
from hashlib import sha256
from typing import Final, final
from urllib.parse import quote

from mypy_extensions import i64

from broker.core.arguments.partition import (
    BY_PROPERTY,
    BY_SELECTOR,
    PARTITION_BY,
    PARTITION_MEMBERS,
    PARTITION_PINS,
    WEIGHT_MAX,
)
from broker.core.arguments.rule import Arguments, invalid, is_address, queue_in_address
from broker.core.errors import PreconditionFailed
from broker.core.hashing import SLOTS, Share, Slots, hash_of
from broker.core.message_view import PROPERTIES, HeaderReader, MessageView
from broker.core.partitions.runs import Place, Slot
from broker.core.selector.selector import Selector
from broker.core.values import encode, show

TO: Final = "to"
WEIGHT: Final = "weight"
SELECTOR: Final = "selector"
_FIELDS: Final = (TO, WEIGHT, SELECTOR)
NAME_BYTES_MAX: Final = 255
DIGEST_DIGITS: Final = 32
NO_MEMBER: Final[i64] = -1
KNOWN_MAX: Final = 4096  # keys whose places are remembered; the next one clears all


@final
class MappedMember(Share):
    """A member of a mapping: the name of its queue, its weight, and its selector; None accepts everything.

    `address`: the URI of the queue in another broker to which the queue here sends its messages; "": the
    messages stay here.
    """

    def __init__(self, name: str, weight: int, selector: Selector | None, address: str) -> None:
        super().__init__(f"queue {name}", weight)
        self.name = name
        self.selector = selector
        self.address = address


@final
class Mapping:
    """The mapping of messages to `members`, in their order.

    By the value of a header or property: a value in `pins` goes to the member with this index, and every
    other value by its hash to a member, in proportion to the weights. A message without the value has the
    empty key. By selectors: the first member whose selector accepts the message gets it; if there is none, no
    member.

    A change of the mapping makes a new one. Keys that neither the change nor the weights concern stay where
    they are, because each key draws its member. [weighted rendezvous hashing]
    """

    def __init__(self, by: str, members: list[MappedMember], pins: dict[str, int]) -> None:
        self.by = by
        self.members = members
        self.pins = pins
        self.by_selector = by == BY_SELECTOR
        is_property = by.startswith(BY_PROPERTY)
        self._header = "" if is_property or self.by_selector else by
        self._header_octets = self._header.encode(errors="surrogatepass")
        self._property = property_name(by) if is_property else ""
        self._slots = Slots()
        self._known: dict[str, Place] = {}
        self._known_octets: dict[bytes, Place] = {}  # the same for octets of headers
        self._nowhere = Place("", NO_MEMBER)

    def find_place(self, view: MessageView) -> Place:
        """Return the place of a message. Raises the errors of views whose content does not decode."""
        if self.by_selector:
            return self._select(view)
        if not self.members:
            return self._nowhere
        if self._header:
            return self._find_key(view.header_named(self._header))
        return self._find_key(view.property(self._property))

    def find_place_in(self, content: bytes, reader: HeaderReader) -> Place | None:
        """Return the place of a message with this content, without a view; None: `find_place` must find it.

        The key must be a string in a header, which `reader` finds. A view and the decoding of the header cost
        more than the rest of the choice.
        """
        if not self._header or not self.members:
            return None
        octets = reader.string_octets(content, self._header_octets)
        if octets is None:
            return None
        known = self._known_octets.get(octets)
        if known is None:
            known = self._find_key(octets)
            if len(self._known_octets) >= KNOWN_MAX:
                self._known_octets.clear()
            self._known_octets[octets] = known
        return known

    def without(self, names: list[str]) -> Mapping:
        """Return the mapping without these members, and without what is pinned to them."""
        if not names:
            return self
        left = [member for member in self.members if member.name not in names]
        places = {member.name: index for index, member in enumerate(left)}
        pins = {
            value: places[self.members[index].name]
            for value, index in self.pins.items()
            if self.members[index].name in places
        }
        return Mapping(self.by, left, pins)

    def members_of_slot(self, slot: Slot) -> list[int]:
        """Return the indexes of the members that get messages of this slot of any mapping.

        The values that a mapping pins have slots of their own in this mapping only.
        """
        if self.by_selector:
            return list(range(len(self.members)))
        if not self.members:
            return []
        if isinstance(slot, str):
            pinned = self.pins.get(slot)
            return [self._slots.find_owner(slot_of_key(slot), self.members) if pinned is None else pinned]
        found = {self._slots.find_owner(slot, self.members)}
        found |= {index for value, index in self.pins.items() if slot_of_key(value) == slot}
        return sorted(found)

    @property
    def selectors(self) -> list[str]:
        """The texts of the members' selectors in order; "": the member takes everything."""
        return ["" if each.selector is None else each.selector.canonical for each in self.members]

    def _find_key(self, value: object | None) -> Place:
        """Return the place of the key of this value."""
        key = key_of(value)
        place = self._known.get(key)
        return self._locate(key) if place is None else place

    def _locate(self, key: str) -> Place:
        pinned = self.pins.get(key)
        if pinned is not None:
            place = Place(key, pinned)
        else:
            number = slot_of_key(key)
            place = Place(number, self._slots.find_owner(number, self.members))
        if len(self._known) >= KNOWN_MAX:
            self._known.clear()
        self._known[key] = place
        return place

    def _select(self, view: MessageView) -> Place:
        for index, member in enumerate(self.members):
            selector = member.selector
            if selector is None:
                return Place("", index)
            if selector.matches(view):
                return Place(selector.canonical, index)
        return self._nowhere


def key_of(value: object | None) -> str:
    """Return the key of a header's or property's value: its text; "" without a value.

    A number has the key of its digits, and octets have the key of the same string.
    """
    if value is None:
        return ""
    if isinstance(value, str):
        return value
    if isinstance(value, (bytes, bytearray)):
        return value.decode("utf-8", "surrogateescape")
    if isinstance(value, int) and not isinstance(value, bool):
        return str(value)
    return json.dumps(encode(value), sort_keys=True)


def slot_of_key(key: str) -> int:
    """Return the slot of a key that is not pinned."""
    return hash_of(key.encode("utf-8", "surrogateescape")) % SLOTS


def property_name(by: str) -> str:
    """Return the property in `property:NAME`, with underscores as in AMQP 0-9-1."""
    return by.removeprefix(BY_PROPERTY).replace("-", "_")


def member_name(to: str, front: str) -> str:
    """Return the name of the queue for a member of the partitioned queue `front`.

    The queue for an address is named by `front`, the host, the port, the virtual host and the queue there.
    """
    if not is_address(to):
        return to
    _, place, vhost, queue = queue_in_address(to)
    name = f"{front}@{place}/{quote(vhost, '')}/{quote(queue or front, '')}"
    if len(name.encode(errors="surrogatepass")) <= NAME_BYTES_MAX:
        return name
    return f"{front}@{sha256(name.encode(errors='surrogatepass')).hexdigest()[:DIGEST_DIGITS]}"


def full_address(address: str, front: str) -> str:
    """Return the address of a member of `front` with the name of a queue, by default `front`."""
    if queue_in_address(address)[3]:
        return address.strip()
    mark = "&" if "?" in address else "?"
    return f"{address.strip()}{mark}queue={quote(front, '')}"


def full_name(to: str, front: str) -> str:
    """Return the name of a member of `front`, or its address with its queue."""
    return full_address(to, front) if is_address(to) else to


def member_names(arguments: Arguments) -> list[str]:
    """Return the names and addresses in the members of a queue's arguments, which need not be checked."""
    given = arguments.get(PARTITION_MEMBERS)
    if not isinstance(given, list):
        return []
    names = [each.get(TO) if isinstance(each, dict) else each for each in given]
    return [name for name in names if isinstance(name, str)]


def read_mapping(arguments: Arguments, queue: str, front: str) -> Mapping:
    """Return the mapping in the arguments of a partitioned queue, each of which is allowed by itself.

    `queue`: its description for refusals, `queue 'q' in vhost '/'`. `front`: its name. The addresses of
    members need not be valid.

    Raises:
        PreconditionFailed: a property does not exist, or a member or pin is malformed or is there twice.
    """
    by = arguments[PARTITION_BY]
    assert isinstance(by, str), "arguments are checked before they are read"
    if by.startswith(BY_PROPERTY) and property_name(by) not in PROPERTIES:
        raise invalid(PARTITION_BY, queue, by, f"names no property; properties are {', '.join(PROPERTIES)}")
    given = arguments[PARTITION_MEMBERS]
    assert isinstance(given, list), "arguments are checked before they are read"
    members: list[MappedMember] = []
    names: dict[str, int] = {}
    for number, each in enumerate(given, 1):
        what = f"member {number} in '{PARTITION_MEMBERS}' of {queue}"
        member = _read_member(each, by == BY_SELECTOR, what, front)
        if member.name in names:
            raise PreconditionFailed(f"'{PARTITION_MEMBERS}' of {queue} names '{member.name}' twice")
        names[member.name] = len(members)
        members.append(member)
    pins = arguments.get(PARTITION_PINS, {})
    assert isinstance(pins, dict), "arguments are checked before they are read"
    if pins and by == BY_SELECTOR:
        raise invalid(PARTITION_PINS, queue, pins, f"does not go with {PARTITION_BY} '{BY_SELECTOR}'")
    pinned = {value: member_name(name, front) for value, name in pins.items()}
    for value, name in pinned.items():
        if name not in names:
            raise PreconditionFailed(
                f"'{PARTITION_PINS}' of {queue} pins '{value}' to '{name}', which is no member"
            )
    return Mapping(by, members, {value: names[name] for value, name in pinned.items()})


def _read_member(given: object, by_selector: bool, what: str, front: str) -> MappedMember:
    """Return a member of `front`. Raises PreconditionFailed, which calls the member `what`."""
    table = given if isinstance(given, dict) else {TO: given}
    for field in table:
        if field not in _FIELDS:
            raise PreconditionFailed(f"{what} has the unknown field '{field}', known: {', '.join(_FIELDS)}")
    name = table.get(TO)
    if not isinstance(name, str) or not name:
        raise PreconditionFailed(f"{what} has no name of a queue as '{TO}'")
    address = full_address(name, front) if is_address(name) else ""
    name = member_name(name, front)
    weight = table.get(WEIGHT, 1)
    if not isinstance(weight, int) or isinstance(weight, bool) or not 1 <= weight <= WEIGHT_MAX:
        raise PreconditionFailed(
            f"{what} has '{show(weight)}' as '{WEIGHT}', expected an integer from 1 to {WEIGHT_MAX}"
        )
    for field in (WEIGHT,) if by_selector else (SELECTOR,):
        if field in table:
            raise PreconditionFailed(
                f"{what} has a '{field}', which {'does not go' if by_selector else 'goes only'} with "
                f"{PARTITION_BY} '{BY_SELECTOR}'"
            )
    text = table.get(SELECTOR, "")
    if not isinstance(text, str):
        raise PreconditionFailed(f"{what} has '{show(text)}' as '{SELECTOR}', expected a string")
    if not text.strip():
        return MappedMember(name, weight, None, address)
    try:
        return MappedMember(name, weight, Selector(text), address)
    except PreconditionFailed as error:
        raise PreconditionFailed(f"{what}: {error.text}") from error
