"""The running daemon: its settings in effect, changes of settings until the next start, and its end.

[RabbitMQ 4: GET /api/config/effective] The other paths are amqpd's own. rabbitmqctl does the same without
HTTP (set_log_level, set_vm_memory_high_watermark, set_disk_free_limit, suspend_listeners, shutdown).
"""

import asyncio
from typing import Final

from fastapi import APIRouter
from fastapi.responses import Response

from broker.admin.api.answers import ApiError, JSONResponse, bad_request, not_found
from broker.admin.api.management import Managed
from broker.admin.api.requests import Administrator, Body, Name
from broker.admin.json_documents import read_flag, read_text, require_field
from config.running import UnchangeableError

ACCEPTED: Final = 202
CHANGED: Final = 204

router = APIRouter(tags=["control"])


@router.get("/config/effective")
async def list_settings(management: Managed, visitor: Administrator) -> JSONResponse:
    """Return the settings in effect, each with its value and the place that set it. Secrets are hidden."""
    return JSONResponse(management.state.settings.show())


@router.put("/config/effective/{name}", status_code=CHANGED)
async def put_setting(management: Managed, visitor: Administrator, name: Name, body: Body) -> Response:
    """Change a setting until the next start: `log_level`, `memory_max` or `disk_free_min`, to `value`.

    The value has the form that the settings file has.
    """
    try:
        management.state.settings.change(name, require_field(body, "value"))
    except KeyError as error:
        raise not_found(f"no setting '{name}'") from error
    except UnchangeableError as error:
        raise bad_request(str(error)) from error
    return Response(status_code=CHANGED)


@router.post("/nodes/{node}/shutdown", status_code=ACCEPTED)
async def shut_down(management: Managed, visitor: Administrator, node: Name, body: Body) -> Response:
    """Stop the broker as SIGTERM does: disconnect the clients, close the log, end with status 0.

    The answer comes before the end. `reason` is for the log. A supervisor may start the broker again.
    """
    management.check_node(node)
    reason = read_text(body, "reason", "")
    asyncio.get_running_loop().call_soon(management.state.shut_down, visitor.name, reason)
    return Response(status_code=ACCEPTED)


@router.put("/nodes/{node}/listeners", status_code=CHANGED)
async def put_listeners(management: Managed, visitor: Administrator, node: Name, body: Body) -> Response:
    """Accept no more connections of clients (`suspended`: true), or accept them again (false).

    Open connections go on, and so does HTTP. The broker is not ready meanwhile.
    """
    management.check_node(node)
    require_field(body, "suspended")
    wanted = not read_flag(body, "suspended")
    failure = await management.state.set_accepting(wanted)
    if failure:
        raise ApiError(503, "service_unavailable", failure)
    return Response(status_code=CHANGED)
