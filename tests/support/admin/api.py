"""A client of a daemon's HTTP API."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any
from urllib.parse import quote

import httpx
import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.daemon.daemon import PATIENCE_S, Address


class Api:
    """The client of a user. Paths are given in segments, which are encoded: "/" is a valid name."""

    def __init__(self, base: str, user: str = "guest", password: str = "guest") -> None:
        self.base = base
        self.client = httpx.Client(auth=(user, password), timeout=PATIENCE_S)

    def close(self) -> None:
        """Close the connection."""
        self.client.close()

    def url(self, *segments: str) -> str:
        """The address of an object."""
        return f"{self.base}/api/" + "/".join(quote(segment, safe="") for segment in segments)

    def ask(self, method: str, *segments: str, body: object = None, **query: str) -> httpx.Response:
        """Send a request and take whatever comes."""
        return self.client.request(method, self.url(*segments), json=body, params=query or None)

    def get(self, *segments: str, **query: str) -> Any:
        """Return the JSON body of a GET request; fails unless the status is 200."""
        answer = self.ask("GET", *segments, **query)
        assert answer.status_code == 200, answer.text
        return answer.json()

    def put(self, *segments: str, status: int = 201, body: object = None, **fields: object) -> None:
        """Make or change something; `fields` are the body if none is given."""
        answer = self.ask("PUT", *segments, body=fields if body is None else body)
        assert answer.status_code == status, answer.text
        assert answer.content == b""

    def post(self, *segments: str, status: int, body: object) -> Any:
        """Have something done."""
        answer = self.ask("POST", *segments, body=body)
        assert answer.status_code == status, answer.text
        return answer.json() if answer.content else None

    def delete(self, *segments: str, status: int = 204, condition: str = "") -> None:
        """Take something away, on a condition like if-empty."""
        query = {condition: "true"} if condition else {}
        answer = self.ask("DELETE", *segments, **query)
        assert answer.status_code == status, answer.text

    def refused(
        self, status: int, method: str, *segments: str, body: object = None, condition: str = "", **query: str
    ) -> Mapping[str, str]:
        """Send a request that must be refused with a status; return the answer's reason."""
        query |= {condition: "true"} if condition else {}
        answer = self.ask(method, *segments, body=body, **query)
        assert answer.status_code == status, answer.text
        document = answer.json()
        assert set(document) == {"error", "reason"}, document
        return dict(document)


def fetch(url: str, **options: Any) -> httpx.Response:
    """GET with the patience of tests, where httpx itself gives up after 5 s."""
    return httpx.get(url, timeout=PATIENCE_S, **options)


@contextmanager
def amqp(
    address: Address, vhost: str, user: str = "guest", password: str = "guest"
) -> Iterator[BlockingChannel]:
    """A channel of pika with confirms, in a virtual host."""
    credentials = pika.PlainCredentials(user, password)
    parameters = pika.ConnectionParameters(address.host, address.port, vhost, credentials)
    with pika.BlockingConnection(parameters) as connection:
        channel = connection.channel()
        channel.confirm_delivery()
        yield channel
