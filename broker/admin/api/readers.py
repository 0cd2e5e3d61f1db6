"""Programs that read in bulk, and their lag, as they report it. [amqpd]"""

from typing import Annotated, Any, Final

from fastapi import APIRouter, Depends
from fastapi.responses import Response

from broker.admin.api.answers import ApiError, JSONResponse, bad_request, not_authorised, not_found
from broker.admin.api.lists import Options, answer_with_list
from broker.admin.api.management import Management, managed
from broker.admin.api.requests import Asker, Body, Name, Visitor
from broker.admin.json_documents import require_field
from broker.admin.readers import Position, Readers, Report
from broker.auth.terms import READ

PARTITIONS_MAX: Final = 1000  # for each reader
NAME_MAX: Final = 255  # bytes, as for other names
OFFSET_END: Final = 1 << 62

router = APIRouter(tags=["readers"])


async def _readers(management: Annotated[Management, Depends(managed)]) -> Readers:
    return management.state.readers


Known = Annotated[Readers, Depends(_readers)]


@router.get("/readers")
async def list_readers(readers: Known, visitor: Asker, options: Options) -> Response:
    """Return the readers in all virtual hosts.

    A user without the tag `monitoring` or `administrator` sees only their own.
    """
    vhosts = {vhost.name for vhost in visitor.vhosts()}
    return await _list(readers, [each for each in readers.all() if each.vhost in vhosts], visitor, options)


@router.get("/readers/{vhost}")
async def list_readers_in(readers: Known, visitor: Asker, options: Options, vhost: Name) -> Response:
    """Return the readers in a virtual host."""
    virtual_host = visitor.vhost(vhost)
    return await _list(
        readers, [each for each in readers.all() if each.vhost == virtual_host.name], visitor, options
    )


@router.get("/readers/{vhost}/{name}")
async def get_reader(readers: Known, visitor: Asker, vhost: Name, name: Name) -> JSONResponse:
    """Return the last report of a reader, and its age in seconds. `lag` counts messages."""
    return JSONResponse(_shown(readers, _found(readers, visitor, vhost, name, to_change=False)))


@router.put("/readers/{vhost}/{name}", status_code=204)
async def report_reader(readers: Known, visitor: Asker, vhost: Name, name: Name, body: Body) -> Response:
    """Report the progress of a reader: `partitions`, each with `queue`, `partition`, `next` and `end`."""
    virtual_host = visitor.vhost(vhost)
    if not name or len(name.encode()) > NAME_MAX:
        raise bad_request(f"the name of a reader has 1 to {NAME_MAX} bytes, not {len(name.encode())}")
    before = readers.find(virtual_host.name, name)
    if before is not None:
        visitor.require_owner(before.user, to_change=True)
    positions = _positions(body)
    rights = visitor.rights(virtual_host)
    for queue in {each.queue for each in positions}:
        if not rights.has_right(READ, queue):
            raise not_authorised(f"user '{visitor.name}' may not read queue '{queue}' in vhost '{vhost}'")
    if not readers.take(virtual_host.name, name, visitor.name, positions):
        raise ApiError(
            409,
            "conflict",
            f"reader '{name}' in vhost '{vhost}' is refused: the broker keeps no more readers",
        )
    return Response(status_code=204)


@router.delete("/readers/{vhost}/{name}", status_code=204)
async def forget_reader(readers: Known, visitor: Asker, vhost: Name, name: Name) -> Response:
    """Delete the report of a reader that has ended."""
    readers.forget(_found(readers, visitor, vhost, name, to_change=True))
    return Response(status_code=204)


async def _list(readers: Readers, reports: list[Report], visitor: Visitor, options: Options) -> Response:
    return await answer_with_list(
        [each for each in reports if visitor.monitors or each.user == visitor.name],
        lambda each: _shown(readers, each),
        options,
        lambda each: (each.vhost, each.name),
        lambda each: each.name,
    )


def _found(readers: Readers, visitor: Visitor, vhost: str, name: str, to_change: bool) -> Report:
    report = readers.find(visitor.vhost(vhost).name, name)
    if report is None:
        raise not_found(f"no reader '{name}' in vhost '{vhost}'")
    visitor.require_owner(report.user, to_change)
    return report


def _shown(readers: Readers, report: Report) -> dict[str, Any]:
    return {
        "name": report.name,
        "vhost": report.vhost,
        "user": report.user,
        "lag": report.lag,
        "age": round(readers.age(report), 3),
        "partitions": [each._asdict() | {"lag": each.lag} for each in report.positions],
    }


def _positions(body: Body) -> list[Position]:
    """Return the partitions of a report. Raises ApiError."""
    partitions = require_field(body, "partitions")
    if not isinstance(partitions, list) or len(partitions) > PARTITIONS_MAX:
        raise bad_request(f"'partitions' is not a list of at most {PARTITIONS_MAX}")
    return [_position(each) for each in partitions]


def _position(given: object) -> Position:
    values = [given.get(name) for name in Position._fields] if isinstance(given, dict) else []
    numbers = [each for each in values[1:] if type(each) is int and 0 <= each < OFFSET_END]
    if len(numbers) != 3 or not isinstance(values[0], str):
        raise bad_request(f"a partition is not {{queue, partition, next, end}}: {given!r}")
    return Position(values[0], *numbers)
