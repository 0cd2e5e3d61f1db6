"""Which staged sink a request is about, and whether its sender may use it."""

from typing import Final

from broker.adapters.amqp091.rows import Checker
from broker.admin.api.errors import ApiError, bad_request, not_found
from broker.admin.api.management import Management
from broker.admin.api.visitor import Visitor
from broker.admin.fields import Fields, number, text
from broker.core.names import check_length
from broker.core.operators.sink import Sink

NUMBER_MAX: Final = 2**62


def conflict(reason: str) -> ApiError:
    """The request does not go with what there is."""
    return ApiError(409, "conflict", reason)


def owned(management: Management, visitor: Visitor, vhost: str, query: str) -> Sink:
    """A sink that the visitor made, or may change as an administrator. Raises ApiError, NotFound."""
    sink = management.broker.sinks.existing(visitor.vhost(vhost), query)
    visitor.require_owner(sink.user, True)
    return sink


def attached(management: Management, visitor: Visitor, vhost: str, query: str, body: Fields) -> Sink:
    """The same, for whoever attached last. Raises ApiError, NotFound, PreconditionFailed."""
    sink = owned(management, visitor, vhost, query)
    check_epoch(sink, body)
    return sink


def check_epoch(sink: Sink, body: Fields) -> None:
    """Refuse whoever attached before others did. Raises ApiError, PreconditionFailed."""
    epoch = number(body, "epoch")
    if epoch != sink.epoch:
        raise conflict(f"{sink.where()} has epoch {sink.epoch}, not {epoch}")


def check_checkpoint(sink: Sink, body: Fields) -> str:
    """The checkpoint that a request names; refuse another one than that of the sink's batches.

    Raises ApiError, PreconditionFailed.
    """
    checkpoint = text(body, "checkpoint", "")
    check_length("checkpoint", checkpoint)
    if not sink.serves(checkpoint):
        raise conflict(
            f"{sink.where()} has batches up to {sink.last} of checkpoint '{sink.checkpoint}', and this is "
            f"checkpoint '{checkpoint}': its batches would be taken for those; use another name, or delete "
            "the sink first"
        )
    return checkpoint


def check_there(sink: Sink) -> None:
    """Refuse what was deleted meanwhile. Raises ApiError."""
    if sink.gone:
        raise not_found(f"{sink.where()} was deleted")


def checker_of(management: Management, visitor: Visitor, sink: Sink) -> Checker:
    """The question whether the visitor may publish a sink's rows."""
    server = management.server
    rights = visitor.rights(sink.virtual_host)
    return Checker(rights, sink.virtual_host, int(server.frame_max), int(server.body_bytes_max))


def count(body: Fields, name: str) -> int:
    """A field that counts something. Raises ApiError, PreconditionFailed."""
    value = number(body, name)
    if not 0 <= value < NUMBER_MAX:
        raise bad_request(f"{name} {value} is not from 0 to {NUMBER_MAX - 1}")
    return value
