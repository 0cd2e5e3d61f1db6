"""The upstreams of federation: RabbitMQ's parameters, checked and typed. [RabbitMQ federation reference]

A parameter of the component `federation-upstream` describes a broker from which federated exchanges and
queues get messages. A parameter of `federation-upstream-set` lists upstreams, each with fields that replace
the upstream's own. The set `all` has all upstreams of the virtual host. A policy names an upstream, a set, or
a pattern of upstreams' names.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from typing import Final, final

from broker.core.arguments.rule import MILLISECONDS_MAX
from broker.core.errors import PreconditionFailed
from broker.core.policies.pattern import NamePattern
from broker.core.policies.policy import FEDERATION_UPSTREAM, FEDERATION_UPSTREAM_SET
from broker.core.values import show
from broker.core.vhosts.parameters import VhostParameters
from broker.forwarding.definition import (
    NO_ACK,
    NUMBER_MAX,
    ON_CONFIRM,
    ON_PUBLISH,
    PREFETCH,
    PREFETCH_MAX,
    RECONNECT_DELAY,
    SHOVEL,
    FieldReader,
    parse_definition,
)
from broker.forwarding.uri import AMQP091, Uri

UPSTREAM: Final = "federation-upstream"
"""The component of the parameters that define upstreams."""

UPSTREAM_SET: Final = "federation-upstream-set"
"""The component of the parameters that define sets of upstreams."""

ALL: Final = "all"
"""The set of all upstreams."""

NAME: Final = "upstream"
"""The field of a set's element with the name of the upstream."""

ACK_MODES: Final = (ON_CONFIRM, ON_PUBLISH, NO_ACK)
MAX_HOPS: Final = 1
HOPS_MAX: Final = 32767  # the hops of a binding are a short integer in RabbitMQ
QUEUE_TYPES: Final = ("classic", "quorum")
NEVER: Final = "never"
CLEANUP_MODES: Final = ("default", NEVER)
CHANNEL_MODES: Final = ("multiple", "single")


@final
class Upstream:
    """An upstream as a federated exchange or queue uses it.

    `exchange` and `queue`: the names at the upstream, "": the local name. `prefetch`: messages that are on
    their way. `reconnect_delay`: seconds. `max_hops`: links that a message may pass. `expires`: ms that the
    upstream's queue for an exchange lasts unused, None: forever. `message_ttl`: ms that a message waits
    there, None: forever. `trusts_user_id`: messages keep their property `user_id`. `keeps_resources`: queue
    and exchange of a link stay at the upstream when the link is deleted. `waits_for_bind`: each binding is
    confirmed.
    """

    def __init__(self, name: str, uris: list[Uri]) -> None:
        self.name = name
        self.uris = uris
        self.exchange = ""
        self.queue = ""
        self.consumer_tag = f"federation-link-{name}"
        self.prefetch = PREFETCH
        self.reconnect_delay = RECONNECT_DELAY
        self.ack_mode = ON_CONFIRM
        self.max_hops = MAX_HOPS
        self.expires: int | None = None
        self.message_ttl: int | None = None
        self.trusts_user_id = False
        self.queue_type = QUEUE_TYPES[0]
        self.keeps_resources = False
        self.waits_for_bind = True


def parse_upstream(vhost: str, name: str, value: object) -> Upstream:
    """Return the upstream in the value of a parameter.

    Raises PreconditionFailed, which names the field and its value. No text has the password of a URI.
    """
    if not isinstance(value, Mapping):
        raise PreconditionFailed(f"the value of federation upstream '{name}' is not an object")
    fields = {field: each for field, each in value.items() if each is not None}
    reader = FieldReader(fields)
    upstream = Upstream(name, reader.uris("uri", vhost, AMQP091))
    _read_shared(reader, upstream)
    reader.refuse_others()
    return upstream


def parse_upstream_set(vhost: str, name: str, value: object) -> list[dict[str, object]]:
    """Return the elements of a set of upstreams. Raises PreconditionFailed."""
    where = f"federation upstream set '{name}'"
    if not isinstance(value, list):
        raise PreconditionFailed(f"the value of {where} is not a list")
    elements: list[dict[str, object]] = []
    for number, element in enumerate(value, 1):
        if not isinstance(element, Mapping):
            raise PreconditionFailed(f"element {number} of {where} is not an object: '{show(element)}'")
        fields = {field: each for field, each in element.items() if each is not None}
        reader = FieldReader(fields)
        if not reader.name(NAME):
            raise PreconditionFailed(f"element {number} of {where} has no '{NAME}'")
        _read_shared(reader, Upstream("", []))
        reader.refuse_others()
        elements.append(fields)
    return elements


def _read_shared(reader: FieldReader, upstream: Upstream) -> None:
    """Read the fields that upstreams and elements of sets have. Raises PreconditionFailed."""
    upstream.exchange = reader.name("exchange")
    upstream.queue = reader.name("queue")
    upstream.consumer_tag = reader.name("consumer-tag") or upstream.consumer_tag
    upstream.prefetch = reader.number("prefetch-count", PREFETCH, PREFETCH_MAX)
    upstream.reconnect_delay = reader.number("reconnect-delay", RECONNECT_DELAY, NUMBER_MAX)
    upstream.ack_mode = reader.choice("ack-mode", ACK_MODES, ON_CONFIRM)
    upstream.max_hops = reader.number("max-hops", MAX_HOPS, HOPS_MAX)
    if upstream.max_hops == 0:
        raise reader.refuse("max-hops", f"a whole number from 1 to {HOPS_MAX}")
    upstream.expires = _milliseconds(reader, "expires", 1)
    upstream.message_ttl = _milliseconds(reader, "message-ttl", 0)
    upstream.trusts_user_id = reader.flag("trust-user-id")
    upstream.queue_type = reader.choice("queue-type", QUEUE_TYPES, QUEUE_TYPES[0])
    upstream.keeps_resources = reader.choice("resource-cleanup-mode", CLEANUP_MODES, "default") == NEVER
    upstream.waits_for_bind = not reader.flag("bind-nowait")
    reader.choice("channel-use-mode", CHANNEL_MODES, "single")  # a link has a single channel
    reader.name("ha-policy")  # a field for mirrored queues


def _milliseconds(reader: FieldReader, field: str, least: int) -> int | None:
    if reader.value(field, None) is None:
        return None
    number = reader.number(field, 0, MILLISECONDS_MAX)
    if number < least:
        raise reader.refuse(field, f"a whole number from {least} to {MILLISECONDS_MAX}")
    return number


COMPONENTS: Final[dict[str, Callable[[str, str, object], object]]] = {
    SHOVEL: parse_definition,
    UPSTREAM: parse_upstream,
    UPSTREAM_SET: parse_upstream_set,
}
"""The components of parameters that the forwarding runs, each with the check of a value.

The check takes virtual host, name and value, and raises PreconditionFailed.
"""


@final
class Choice:
    """An upstream that a policy chooses. `text`: its fields, by which a change is noticed."""

    def __init__(self, upstream: Upstream, text: str) -> None:
        self.upstream = upstream
        self.text = text


def choose_upstreams(vhost: str, parameters: VhostParameters, federation: tuple[str, str]) -> list[Choice]:
    """Return the upstreams of a policy's key and value, without those that do not exist.

    Raises PreconditionFailed for a parameter that a later version of the broker has set.
    """
    key, value = federation
    if key == FEDERATION_UPSTREAM:
        elements: list[dict[str, object]] = [{NAME: value}]
    elif key == FEDERATION_UPSTREAM_SET and value != ALL:
        elements = parse_upstream_set(vhost, value, parameters.get(UPSTREAM_SET, value) or [])
    else:
        pattern = NamePattern("" if value == ALL and key == FEDERATION_UPSTREAM_SET else value)
        names = [name for _, name, _ in parameters.items(UPSTREAM)]
        elements = [{NAME: name} for name in names if pattern.matches(name)]
    choices: list[Choice] = []
    for element in elements:
        name = str(element[NAME])
        fields = parameters.get(UPSTREAM, name)
        if isinstance(fields, Mapping):
            merged = {**fields, **{field: each for field, each in element.items() if field != NAME}}
            choices.append(
                Choice(parse_upstream(vhost, name, merged), json.dumps([name, merged], sort_keys=True))
            )
    return choices
