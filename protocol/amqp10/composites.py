"""The composites in fields of other composites, and in messages. [amqp-1.0 parts 2-4]

Derived by `python -m tests.support.amqp10.derived_modules` and not to be edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final
from uuid import UUID

from protocol.amqp10.types import Composite


@final
@dataclass(slots=True, kw_only=True)
class Error(Composite):
    """amqp:error:list"""

    DESCRIPTOR: ClassVar[int] = 0x1D
    condition: str
    description: str | None = None
    info: Mapping[str, object] | None = None


@final
@dataclass(slots=True, kw_only=True)
class Header(Composite):
    """amqp:header:list"""

    DESCRIPTOR: ClassVar[int] = 0x70
    durable: bool | None = None
    priority: int | None = None
    ttl: int | None = None
    first_acquirer: bool | None = None
    delivery_count: int | None = None


@final
@dataclass(slots=True, kw_only=True)
class Properties(Composite):
    """amqp:properties:list"""

    DESCRIPTOR: ClassVar[int] = 0x73
    message_id: int | UUID | bytes | str | None = None
    user_id: bytes | None = None
    to: str | None = None
    subject: str | None = None
    reply_to: str | None = None
    correlation_id: int | UUID | bytes | str | None = None
    content_type: str | None = None
    content_encoding: str | None = None
    absolute_expiry_time: int | None = None
    creation_time: int | None = None
    group_id: str | None = None
    group_sequence: int | None = None
    reply_to_group_id: str | None = None


@final
@dataclass(slots=True, kw_only=True)
class Received(Composite):
    """amqp:received:list"""

    DESCRIPTOR: ClassVar[int] = 0x23
    section_number: int
    section_offset: int


@final
@dataclass(slots=True, kw_only=True)
class Accepted(Composite):
    """amqp:accepted:list"""

    DESCRIPTOR: ClassVar[int] = 0x24


@final
@dataclass(slots=True, kw_only=True)
class Rejected(Composite):
    """amqp:rejected:list"""

    DESCRIPTOR: ClassVar[int] = 0x25
    error: Error | None = None


@final
@dataclass(slots=True, kw_only=True)
class Released(Composite):
    """amqp:released:list"""

    DESCRIPTOR: ClassVar[int] = 0x26


@final
@dataclass(slots=True, kw_only=True)
class Modified(Composite):
    """amqp:modified:list"""

    DESCRIPTOR: ClassVar[int] = 0x27
    delivery_failed: bool | None = None
    undeliverable_here: bool | None = None
    message_annotations: Mapping[str, object] | None = None


@final
@dataclass(slots=True, kw_only=True)
class Source(Composite):
    """amqp:source:list"""

    DESCRIPTOR: ClassVar[int] = 0x28
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[str, object] | None = None
    distribution_mode: str | None = None
    filter: Mapping[str, object] | None = None
    default_outcome: Outcome | None = None
    outcomes: tuple[str, ...] = ()
    capabilities: tuple[str, ...] = ()


@final
@dataclass(slots=True, kw_only=True)
class Target(Composite):
    """amqp:target:list"""

    DESCRIPTOR: ClassVar[int] = 0x29
    address: str | None = None
    durable: int = 0
    expiry_policy: str = "session-end"
    timeout: int = 0
    dynamic: bool = False
    dynamic_node_properties: Mapping[str, object] | None = None
    capabilities: tuple[str, ...] = ()


@final
@dataclass(slots=True, kw_only=True)
class DeleteOnClose(Composite):
    """amqp:delete-on-close:list"""

    DESCRIPTOR: ClassVar[int] = 0x2B


@final
@dataclass(slots=True, kw_only=True)
class DeleteOnNoLinks(Composite):
    """amqp:delete-on-no-links:list"""

    DESCRIPTOR: ClassVar[int] = 0x2C


@final
@dataclass(slots=True, kw_only=True)
class DeleteOnNoMessages(Composite):
    """amqp:delete-on-no-messages:list"""

    DESCRIPTOR: ClassVar[int] = 0x2D


@final
@dataclass(slots=True, kw_only=True)
class DeleteOnNoLinksOrMessages(Composite):
    """amqp:delete-on-no-links-or-messages:list"""

    DESCRIPTOR: ClassVar[int] = 0x2E


@final
@dataclass(slots=True, kw_only=True)
class Coordinator(Composite):
    """amqp:coordinator:list"""

    DESCRIPTOR: ClassVar[int] = 0x30
    capabilities: tuple[str, ...] = ()


@final
@dataclass(slots=True, kw_only=True)
class Declare(Composite):
    """amqp:declare:list"""

    DESCRIPTOR: ClassVar[int] = 0x31
    global_id: object = None


@final
@dataclass(slots=True, kw_only=True)
class Discharge(Composite):
    """amqp:discharge:list"""

    DESCRIPTOR: ClassVar[int] = 0x32
    txn_id: bytes
    fail: bool | None = None


@final
@dataclass(slots=True, kw_only=True)
class Declared(Composite):
    """amqp:declared:list"""

    DESCRIPTOR: ClassVar[int] = 0x33
    txn_id: bytes


@final
@dataclass(slots=True, kw_only=True)
class TransactionalState(Composite):
    """amqp:transactional-state:list"""

    DESCRIPTOR: ClassVar[int] = 0x34
    txn_id: bytes
    outcome: Outcome | None = None


DeliveryState = Received | Accepted | Rejected | Released | Modified | Declared | TransactionalState
Outcome = Accepted | Rejected | Released | Modified | Declared
