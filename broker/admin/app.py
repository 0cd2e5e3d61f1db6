"""The admin HTTP surface: metrics, health, what is running, and the API."""

from fastapi import FastAPI
from fastapi.responses import JSONResponse, StreamingResponse

from broker.admin.api.management import Management
from broker.admin.api.routes import PREFIX, add_api
from broker.admin.metrics import CONTENT_TYPE, Exposition
from broker.admin.state import AdminState


def create_app(state: AdminState, management: Management | None = None) -> FastAPI:
    """Make the application that tells about one daemon and, with `management`, changes what it has."""
    described = None if management is None else f"{PREFIX}/openapi.json"
    app = FastAPI(title="amqpd", version=state.version, openapi_url=described, docs_url=None, redoc_url=None)
    if management is not None:
        add_api(app, management)
    exposition = Exposition(state)

    @app.get("/")
    async def root() -> JSONResponse:
        """What is running."""
        return JSONResponse({"product": "amqpd", "version": state.version, "flavour": state.flavour})

    @app.get("/metrics")
    async def metrics() -> StreamingResponse:
        """All metrics in Prometheus's text format."""
        return StreamingResponse(exposition.write(), media_type=CONTENT_TYPE)

    @app.get("/health/live")
    async def live() -> JSONResponse:
        """200 as long as the event loop turns."""
        return JSONResponse({"status": "live"})

    @app.get("/health/ready")
    async def ready() -> JSONResponse:
        """200 if clients can come and consume, and publish or wait to publish; 503 and the reason if not."""
        reason = state.not_ready()
        if not reason and state.measured.log.failure:
            reason = f"the log accepts nothing: {state.measured.log.failure}"
        if reason:
            return JSONResponse({"status": "not ready", "reason": reason}, status_code=503)
        shortage = state.measured.resources.shortage.reason
        return JSONResponse({"status": "ready", "alarms": shortage} if shortage else {"status": "ready"})

    @app.get("/health/alarms")
    async def alarms() -> JSONResponse:
        """200 while nobody is held back; 503 and the reason while publishers wait for memory or space."""
        shortage = state.measured.resources.shortage
        if shortage.reason:
            found = {"status": "alarm", "reason": shortage.reason, "publishers_held": len(shortage.held)}
            return JSONResponse(found, status_code=503)
        return JSONResponse({"status": "ok"})

    return app
