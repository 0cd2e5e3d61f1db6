"""Broker processes that are each other's upstreams, with a real client."""

import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pika
from pika.adapters.blocking_connection import BlockingChannel

from tests.support.admin.api import Api, amqp
from tests.support.daemon.daemon import PATIENCE_S, Address

Published = tuple[str, str, bytes]


class FederatedSite:
    """A broker, of amqpd or RabbitMQ, with its API."""

    def __init__(self, address: Address, api: Api) -> None:
        self.address = address
        self.api = api

    @contextmanager
    def channel(self) -> Iterator[BlockingChannel]:
        with amqp(self.address, "/") as channel:
            yield channel

    def upstream(self, name: str, site: "FederatedSite", **fields: object) -> None:
        """Make a site an upstream of this one; underscores in names of fields are hyphens."""
        value = {field.replace("_", "-"): each for field, each in fields.items()}
        value |= {"uri": site.address.url(), "reconnect-delay": 1}
        self.api.put("parameters", "federation-upstream", "/", name, value=value)

    def federate(self, pattern: str, apply_to: str, **definition: str) -> None:
        """Set a policy, by default for all upstreams."""
        keys = {key.replace("_", "-"): value for key, value in definition.items()}
        keys = keys or {"federation-upstream-set": "all"}
        fields = {"pattern": pattern, "apply-to": apply_to, "definition": keys}
        self.api.put("policies", "/", f"federate-{apply_to}", body=fields)

    def links(self) -> list[dict[str, Any]]:
        links: list[dict[str, Any]] = self.api.get("federation-links")
        return links

    def wait_for_links(self, count: int = 1, status: str = "running") -> None:
        """Wait until so many links have a status. The brokers have no event for this."""
        until = time.monotonic() + PATIENCE_S
        while [link["status"] for link in self.links()] != [status] * count:
            assert time.monotonic() < until, self.links()
            time.sleep(0.05)

    def wait_for_bindings(self, exchange: str, keys: set[str]) -> None:
        """Wait until links have bound an exchange with exactly these keys."""
        until = time.monotonic() + PATIENCE_S
        while self.federated_keys(exchange) != keys:
            assert time.monotonic() < until, self.federated_keys(exchange)
            time.sleep(0.05)

    def wait_for_federated_queues(self, names: list[str]) -> None:
        """Wait until links have exactly these queues here."""
        until = time.monotonic() + PATIENCE_S
        while names != (found := self.federated_queues()):
            assert time.monotonic() < until, found
            time.sleep(0.05)

    def federated_queues(self) -> list[str]:
        queues = self.api.get("queues", "/")
        return sorted(queue["name"] for queue in queues if queue["name"].startswith("federation:"))

    def federated_keys(self, exchange: str) -> set[str]:
        bindings = self.api.get("exchanges", "/", exchange, "bindings", "source")
        return {each["routing_key"] for each in bindings if each["destination"].startswith("federation:")}

    def publish(self, *messages: Published) -> None:
        """Publish persistent messages: exchange, routing key, body."""
        with self.channel() as channel:
            for exchange, key, body in messages:
                properties = pika.BasicProperties(delivery_mode=2, headers={"n": len(body)})
                channel.basic_publish(exchange, key, body, properties)

    def take(self, queue: str, count: int) -> list[tuple[Any, Any, bytes]]:
        """Consume so many messages, however long they take to come."""
        found = []
        with self.channel() as channel:
            channel.basic_qos(prefetch_count=100)
            for delivery in channel.consume(queue, auto_ack=False):
                found.append(delivery)
                channel.basic_ack(delivery[0].delivery_tag)
                if len(found) == count:
                    return found
        raise AssertionError("the consumer has ended")

    def bodies(self, queue: str, count: int) -> list[bytes]:
        return [body for _, _, body in self.take(queue, count)]

    def ready(self, queue: str) -> int:
        with self.channel() as channel:
            return int(channel.queue_declare(queue, passive=True).method.message_count)


def numbered(first: int, last: int) -> list[bytes]:
    return [b"%d" % number for number in range(first, last + 1)]
