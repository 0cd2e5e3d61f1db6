"""All paths of the API."""

import asyncio

from fastapi import FastAPI

from broker.admin.api import (
    attention,
    bindings,
    channels,
    connections,
    consumers,
    control,
    definitions,
    delays,
    dispatchers,
    exchanges,
    federation,
    follow,
    health,
    inspection,
    journal,
    limits,
    login,
    messages,
    operations,
    overview,
    parameters,
    partitioned,
    policies,
    previews,
    publish,
    queues,
    readers,
    replicas,
    shovels,
    sinks,
    stages,
    stream_protocol,
    streams,
    users,
    vhosts,
)
from broker.admin.api.answers import add_error_handlers
from broker.admin.api.audit import Audit
from broker.admin.api.management import Management
from broker.admin.api.requests import RawPaths
from broker.admin.app import PREFIX


def create_api(version: str, management: Management) -> FastAPI:
    """Make the application that serves the HTTP API of one daemon, which reports `version`."""
    app = FastAPI(
        title="amqpd", version=version, openapi_url=f"{PREFIX}/openapi.json", docs_url=None, redoc_url=None
    )
    app.state.management = management
    app.state.journal_search = asyncio.Lock()
    for part in (
        login.router,
        overview.router,
        attention.router,
        control.router,
        vhosts.router,
        users.router,
        users.permissions,
        limits.router,
        parameters.router,
        policies.router,
        exchanges.router,
        previews.router,
        replicas.router,  # before paths of a queue: here `quorum` is no virtual host
        queues.router,
        partitioned.router,
        streams.router,
        stream_protocol.router,
        stages.router,
        sinks.router,
        dispatchers.router,
        journal.router,
        messages.router,
        follow.router,
        inspection.router,
        operations.router,
        delays.router,
        publish.router,
        bindings.router,
        connections.router,
        channels.router,
        consumers.router,
        readers.router,
        shovels.router,
        federation.router,
        definitions.router,
        health.router,
        health.aliveness,
    ):
        app.include_router(part, prefix=PREFIX)  # a router in between would analyse every route again
    app.add_middleware(Audit)
    app.add_middleware(RawPaths, prefix=PREFIX)
    add_error_handlers(app)
    return app
