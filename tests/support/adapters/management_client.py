"""A client of the node `/management` without links: requests in, responses out, and a store that waits."""

from broker.adapters.access import Origin, Rights
from broker.adapters.amqp10.connection import Connection10
from broker.adapters.amqp10.management.node import Management
from protocol.amqp10.decoding import decode, decode_typed
from protocol.amqp10.descriptors import AMQP_VALUE, APPLICATION_PROPERTIES, HEADER, PROPERTIES
from protocol.amqp10.encoding import encode, encode_described
from protocol.amqp10.sections import Sections
from protocol.amqp10.types import Ulong
from tests.support.adapters.connection_without_socket import BrokerBench, RecordingEdge
from tests.support.auth.broker_with_users import UserBench

RESPONSE = [PROPERTIES, APPLICATION_PROPERTIES, AMQP_VALUE]


class Response:
    """A response: its status, the encoded correlation-id, and the body, decoded and with types."""

    def __init__(self, data: bytes) -> None:
        values: list[tuple[int, object, object]] = []
        sections = Sections(data, 0, len(data))
        while sections.advance():
            value, typed = decode(data, sections.value)[0], decode_typed(data, sections.value)[0]
            values.append((int(sections.code), value, typed))
        assert [code for code, _, _ in values] == RESPONSE
        properties = values[0][1]
        assert isinstance(properties, list)
        assert properties[:3] == [None, None, None]
        self.status = int(properties[3])
        self.correlation_id = encode(values[0][2][5])  # type: ignore[index]
        assert values[1][1] == {"http:response": "1.1"}
        self.body, self.typed = values[2][1:]

    @property
    def both(self) -> tuple[int, object]:
        """Status and body."""
        return self.status, self.body


class ManagementClient:
    """The pair of links of a user. `responses`: the responses that no test has read yet."""

    def __init__(self, bench: BrokerBench | None = None, user: str = "boss", vhost: str = "/") -> None:
        self.bench = bench or UserBench()
        server = self.bench.server
        self.vhost = self.bench.broker.vhosts[vhost]
        origin = Origin("127.0.0.1", 1, True)
        self.connection = Connection10(server, self.bench.scheduler, RecordingEdge(), origin, secured=False)
        self.connection.user = user
        self.connection.rights = Rights(server.access, user, vhost)
        self.responses: list[bytes] = []
        self.management = Management(self.connection, self.vhost, self.responses.append)

    def send(self, data: bytes) -> Response:
        """A request of any bytes, and its response when the log has synced."""
        assert self.responses == []
        self.management.handle_request(data)
        if not self.responses:
            self.bench.store.complete()
        return self.take()

    def take(self) -> Response:
        """The only response that has come."""
        (response,) = self.responses
        self.responses.clear()
        return Response(response)

    def ask(self, method: str, path: str, body: object = None) -> tuple[int, object]:
        """Status and body of the response."""
        return self.send(request(method, path, body)).both


def request(method: str, path: str, body: object = None, message_id: object = Ulong(1)) -> bytes:
    """A request as most clients send it."""
    return b"".join(sections(method, path, body, message_id))


def sections(method: str, path: str, body: object, message_id: object = Ulong(1)) -> list[bytes]:
    """Header, properties and body of a request."""
    fields = [message_id, None, path, method, "$me"]
    return [
        encode_described(HEADER, encode([])),
        encode_described(PROPERTIES, encode(fields)),
        encode_described(AMQP_VALUE, encode(body)),
    ]
