"""What the arguments of a basic.publish mean."""

import pytest

from broker.adapters.access import Rights
from broker.adapters.amqp091.publish import resolve
from broker.core.errors import NotFound
from broker.core.vhosts.vhost import VirtualHost
from protocol.errors import SYNTAX_ERROR, ProtocolError
from tests.door import Door
from tests.wired import House

ALL = Rights(Door(), "guest", "/")


@pytest.fixture
def virtual_host() -> VirtualHost:
    virtual_host = House().broker.vhosts["/"]
    virtual_host.declarations.declare_queue("q", False, None, False, {})
    return virtual_host


@pytest.mark.parametrize("bits", range(4))
def test_the_route_and_the_two_bits(virtual_host: VirtualHost, bits: int) -> None:
    publication = resolve(ALL, virtual_host, b"\0\0" + b"\0" + b"\1q" + bytes([bits]))
    assert publication.route.queues == [virtual_host.topology.queues["q"]]
    assert publication.mandatory == (bits & 1 != 0)
    assert publication.immediate == publication.special == (bits & 2 != 0)


def test_a_headers_exchange_needs_more_than_the_hot_path(virtual_host: VirtualHost) -> None:
    virtual_host.declarations.bind_queue("q", "amq.headers", "", {})
    publication = resolve(ALL, virtual_host, b"\0\0\x0bamq.headers\0\0")
    assert publication.route.by_message
    assert not publication.special, "the route decides, which may change"


@pytest.mark.parametrize(
    "arguments",
    [
        b"",
        b"\0",
        b"\0\0",
        b"\0\0\5four",
        b"\0\0\0\1",
        b"\0\0\0\1q",
        b"\0\0\0\1q\0\0",
        b"\0\0\xff" + b"x" * 254,
        b"\0\0\0\1\xff\0",
        b"\0\0\2\xc3\x28\0\0",
    ],
)
def test_malformed_arguments(virtual_host: VirtualHost, arguments: bytes) -> None:
    with pytest.raises(ProtocolError) as refused:
        resolve(ALL, virtual_host, arguments)
    assert refused.value.code == SYNTAX_ERROR


def test_no_such_exchange(virtual_host: VirtualHost) -> None:
    with pytest.raises(NotFound, match="no exchange 'x' in vhost '/'"):
        resolve(ALL, virtual_host, b"\0\0\1x\0\0")
