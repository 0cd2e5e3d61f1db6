"""All paths of the API."""

from fastapi import FastAPI

from broker.admin.api import (
    attempts,
    bindings,
    channels,
    connections,
    consumers,
    definitions,
    delayed,
    examining,
    exchanges,
    health,
    journal,
    limits,
    messages,
    operations,
    overview,
    parameters,
    permissions,
    policies,
    publishing,
    queues,
    readers,
    sinks,
    staging,
    streams,
    users,
    vhosts,
)
from broker.admin.api.errors import add_error_handlers
from broker.admin.api.management import Management
from broker.admin.api.paths import RawPaths
from broker.admin.app import PREFIX


def create_api(version: str, management: Management) -> FastAPI:
    """Make the application that serves the HTTP API of one daemon, which reports `version`."""
    app = FastAPI(
        title="amqpd", version=version, openapi_url=f"{PREFIX}/openapi.json", docs_url=None, redoc_url=None
    )
    app.state.management = management
    for part in (
        overview.router,
        vhosts.router,
        users.router,
        permissions.router,
        limits.router,
        parameters.router,
        policies.router,
        exchanges.router,
        queues.router,
        streams.router,
        staging.router,
        sinks.router,
        journal.router,
        attempts.router,
        messages.router,
        examining.router,
        operations.router,
        delayed.router,
        publishing.router,
        bindings.router,
        connections.router,
        channels.router,
        consumers.router,
        readers.router,
        definitions.router,
        health.router,
        health.aliveness,
    ):
        app.include_router(part, prefix=PREFIX)  # a router in between would have every route analysed again
    app.add_middleware(RawPaths, prefix=PREFIX)
    add_error_handlers(app)
    return app
