"""The composites that are bodies of frames. [amqp-1.0 transport 2.7, security 5.3.3]

Derived by `python -m tests.support.amqp10.derived_modules` and not to be edited.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final

from protocol.amqp10.composites import Coordinator, DeliveryState, Error, Source, Target
from protocol.amqp10.types import Composite


@final
@dataclass(slots=True, kw_only=True)
class Open(Composite):
    """amqp:open:list"""

    DESCRIPTOR: ClassVar[int] = 0x10
    container_id: str
    hostname: str | None = None
    max_frame_size: int = 4294967295
    channel_max: int = 65535
    idle_time_out: int | None = None
    outgoing_locales: tuple[str, ...] = ()
    incoming_locales: tuple[str, ...] = ()
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[str, object] | None = None


@final
@dataclass(slots=True, kw_only=True)
class Begin(Composite):
    """amqp:begin:list"""

    DESCRIPTOR: ClassVar[int] = 0x11
    remote_channel: int | None = None
    next_outgoing_id: int
    incoming_window: int
    outgoing_window: int
    handle_max: int = 4294967295
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[str, object] | None = None


@final
@dataclass(slots=True, kw_only=True)
class Attach(Composite):
    """amqp:attach:list"""

    DESCRIPTOR: ClassVar[int] = 0x12
    name: str
    handle: int
    role: bool
    snd_settle_mode: int = 2
    rcv_settle_mode: int = 0
    source: Source | None = None
    target: Target | Coordinator | None = None
    unsettled: Mapping[bytes, object] | None = None
    incomplete_unsettled: bool = False
    initial_delivery_count: int | None = None
    max_message_size: int | None = None
    offered_capabilities: tuple[str, ...] = ()
    desired_capabilities: tuple[str, ...] = ()
    properties: Mapping[str, object] | None = None


@final
@dataclass(slots=True, kw_only=True)
class Flow(Composite):
    """amqp:flow:list"""

    DESCRIPTOR: ClassVar[int] = 0x13
    next_incoming_id: int | None = None
    incoming_window: int
    next_outgoing_id: int
    outgoing_window: int
    handle: int | None = None
    delivery_count: int | None = None
    link_credit: int | None = None
    available: int | None = None
    drain: bool = False
    echo: bool = False
    properties: Mapping[str, object] | None = None


@final
@dataclass(slots=True, kw_only=True)
class Transfer(Composite):
    """amqp:transfer:list"""

    DESCRIPTOR: ClassVar[int] = 0x14
    handle: int
    delivery_id: int | None = None
    delivery_tag: bytes | None = None
    message_format: int | None = None
    settled: bool | None = None
    more: bool = False
    rcv_settle_mode: int | None = None
    state: DeliveryState | None = None
    resume: bool = False
    aborted: bool = False
    batchable: bool = False


@final
@dataclass(slots=True, kw_only=True)
class Disposition(Composite):
    """amqp:disposition:list"""

    DESCRIPTOR: ClassVar[int] = 0x15
    role: bool
    first: int
    last: int | None = None
    settled: bool = False
    state: DeliveryState | None = None
    batchable: bool = False


@final
@dataclass(slots=True, kw_only=True)
class Detach(Composite):
    """amqp:detach:list"""

    DESCRIPTOR: ClassVar[int] = 0x16
    handle: int
    closed: bool = False
    error: Error | None = None


@final
@dataclass(slots=True, kw_only=True)
class End(Composite):
    """amqp:end:list"""

    DESCRIPTOR: ClassVar[int] = 0x17
    error: Error | None = None


@final
@dataclass(slots=True, kw_only=True)
class Close(Composite):
    """amqp:close:list"""

    DESCRIPTOR: ClassVar[int] = 0x18
    error: Error | None = None


@final
@dataclass(slots=True, kw_only=True)
class SaslMechanisms(Composite):
    """amqp:sasl-mechanisms:list"""

    DESCRIPTOR: ClassVar[int] = 0x40
    sasl_server_mechanisms: tuple[str, ...]


@final
@dataclass(slots=True, kw_only=True)
class SaslInit(Composite):
    """amqp:sasl-init:list"""

    DESCRIPTOR: ClassVar[int] = 0x41
    mechanism: str
    initial_response: bytes | None = None
    hostname: str | None = None


@final
@dataclass(slots=True, kw_only=True)
class SaslChallenge(Composite):
    """amqp:sasl-challenge:list"""

    DESCRIPTOR: ClassVar[int] = 0x42
    challenge: bytes


@final
@dataclass(slots=True, kw_only=True)
class SaslResponse(Composite):
    """amqp:sasl-response:list"""

    DESCRIPTOR: ClassVar[int] = 0x43
    response: bytes


@final
@dataclass(slots=True, kw_only=True)
class SaslOutcome(Composite):
    """amqp:sasl-outcome:list"""

    DESCRIPTOR: ClassVar[int] = 0x44
    code: int
    additional_data: bytes | None = None
