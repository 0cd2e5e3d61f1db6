"""The paths and methods of RabbitMQ's HTTP API, and whether amqpd serves them.

The table has the paths of RabbitMQ's dispatchers (`*_mgmt.erl`, `rabbit_mgmt_dispatcher.erl`) at 5b09e55.
"""

from typing import Any, cast

import pytest
from fastapi import FastAPI
from starlette.routing import Match

from broker.admin.api.routes import create_api

PATHS = """
GET         aliveness-test/V
GET POST    all-configuration
GET DELETE  auth/attempts/N
GET DELETE  auth/attempts/N/source
GET         auth/hash_password/P
GET         auth
GET         bindings
GET         bindings/V
GET POST    bindings/V/e/S/q/D
GET POST    bindings/V/e/S/e/D
GET DELETE  bindings/V/e/S/q/D/P
GET         channels
GET         channels/C
GET PUT     cluster-name
GET         connections
GET DELETE  connections/C
GET         connections/C/channels
GET         connections/C/sessions
GET DELETE  connections/username/U
GET         consumers
GET         consumers/V
GET POST    definitions
GET POST    definitions/V
GET         deprecated-features
GET         deprecated-features/used
GET         exchanges
GET         exchanges/V
GET PUT DELETE exchanges/V/E
GET         exchanges/V/E/bindings/destination
GET         exchanges/V/E/bindings/source
POST        exchanges/V/E/publish
GET         extensions
GET         feature-flags
PUT         feature-flags/F/enable
GET         federation-links
GET         federation-links/V
GET         federation-links/V/state/down
GET         federation-links/state/down/
DELETE      federation-links/vhost/V/I/N/restart
GET         global-parameters
GET PUT DELETE global-parameters/P
GET         health/checks/alarms
GET         health/checks/below-node-connection-limit
GET         health/checks/certificate-expiration/1/days
GET         health/checks/is-in-service
GET         health/checks/local-alarms
GET         health/checks/metadata-store/initialized
GET         health/checks/metadata-store/initialized/with-data
GET         health/checks/node-is-quorum-critical
GET         health/checks/port-listener/5672
GET         health/checks/protocol-listener/amqp
GET         health/checks/quorum-queues-without-elected-leaders/all-vhosts/
GET         health/checks/quorum-queues-without-elected-leaders/all-vhosts/pattern/P
GET         health/checks/quorum-queues-without-elected-leaders/vhost/V/
GET         health/checks/quorum-queues-without-elected-leaders/vhost/V/pattern/P
GET         health/checks/reached-target-cluster-size
GET         health/checks/ready-to-serve-clients
GET         health/checks/virtual-hosts
GET         healthchecks/node
GET         healthchecks/node/N
GET         nodes
GET         nodes/N
GET         nodes/N/memory
GET         nodes/N/memory/ets
GET         nodes/N/memory/ets/F
GET         nodes/N/memory/ets/F/relative
GET         nodes/N/memory/ets/relative
GET         nodes/N/memory/relative
GET         operator-policies
GET         operator-policies/V
GET PUT DELETE operator-policies/V/P
GET         overview
GET         parameters
GET         parameters/C
GET         parameters/C/V
GET PUT DELETE parameters/C/V/P
GET         permissions
GET PUT DELETE permissions/V/U
GET         policies
GET         policies/V
GET PUT DELETE policies/V/P
GET         queues
GET         queues/V
GET         queues/V/Q/bindings
GET PUT DELETE queues/V/Q
POST        queues/V/Q/actions
DELETE      queues/V/Q/contents
POST        queues/V/Q/get
GET         queues/detailed
POST        queues/quorum/V/Q/replicas/add
DELETE      queues/quorum/V/Q/replicas/delete
GET         queues/quorum/V/Q/status
POST        queues/quorum/replicas/on/N/grow
DELETE      queues/quorum/replicas/on/N/shrink
POST        rebalance/queues
DELETE      reset
DELETE      reset/N
GET         shovels
GET         shovels/V
GET DELETE  shovels/vhost/V/S
DELETE      shovels/vhost/V/S/restart
GET         stream/V/Q/tracking
GET         stream/connections
GET         stream/connections/V
GET DELETE  stream/connections/V/C
GET         stream/connections/V/C/consumers
GET         stream/connections/V/C/publishers
GET         stream/consumers
GET         stream/consumers/V
GET         stream/publishers
GET         stream/publishers/V
GET         stream/publishers/V/Q
PUT         stream/super-streams/V/S
GET         top/N
GET         top/ets/N
GET         topic-permissions
GET PUT DELETE topic-permissions/V/U
GET PUT DELETE topic-permissions/V/U/E
GET         user-limits
GET         user-limits/U
PUT DELETE  user-limits/U/L
GET         users
GET PUT DELETE users/U
GET         users/U/permissions
GET         users/U/queues
GET         users/U/topic-permissions
POST        users/bulk-delete
GET         users/without-permissions
GET         version
GET         vhost-limits
GET         vhost-limits/V
PUT DELETE  vhost-limits/V/L
GET         vhosts
GET PUT DELETE vhosts/V
GET         vhosts/V/channels
GET         vhosts/V/connections
POST DELETE vhosts/V/deletion/protection
GET         vhosts/V/permissions
POST        vhosts/V/start/N
GET         vhosts/V/topic-permissions
GET         whoami
POST        login
"""

MISSING = """
GET         process/P
GET         traces
GET         trace-files
GET         oauth
"""
"""RabbitMQ's paths that `docs/operators/http-api.md` lists as missing."""


@pytest.fixture(scope="module")
def application() -> FastAPI:
    """The application without a daemon."""
    return create_api("1.0", cast("Any", None))


def served(application: FastAPI, method: str, path: str) -> bool:
    """Whether a route takes this method and path."""
    scope = {"type": "http", "method": method, "path": f"/api/{path.rstrip('/')}"}
    return any(route.matches(scope)[0] is Match.FULL for route in application.routes)


def requests_of(table: str) -> list[tuple[str, str]]:
    rows = [line.split() for line in table.strip().splitlines()]
    return [(method, row[-1]) for row in rows for method in row[:-1]]


def test_the_paths_of_rabbitmq_are_served(application: FastAPI) -> None:
    assert [request for request in requests_of(PATHS) if not served(application, *request)] == []


def test_paths_that_are_missing_are_listed(application: FastAPI) -> None:
    assert [request for request in requests_of(MISSING) if served(application, *request)] == []
