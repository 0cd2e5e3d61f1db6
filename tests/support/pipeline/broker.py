"""A broker for tests of the pipeline, and their publishes."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pika

from tests.support.daemon.daemon import Daemon


class Broker:
    """A daemon, as programs see it. It may be killed and started again: it keeps its ports and data."""

    def __init__(self, folder: Path, *options: str) -> None:
        self.folder = folder
        self.options = options
        self.daemon = Daemon(folder, options).wait_until_ready()

    def restart(self, kill: bool = False, away: float = 0.0) -> None:
        """Start it again where it was, after `away` seconds."""
        address, admin = self.daemon.address, self.daemon.admin.removeprefix("http://")
        if kill:
            self.daemon.kill()
        else:
            self.daemon.stop()
        time.sleep(away)
        words = ("--listen", f"{address.host}:{address.port}", "--admin", admin)
        data = ("--data-dir", str(self.folder / "data"))
        self.daemon = Daemon(self.folder, (*words, *data, *self.options), listen=False).wait_until_ready()

    def stop(self) -> None:
        """End it."""
        self.daemon.stop()

    @property
    def options_of_spark(self) -> dict[str, str]:
        """The broker's address, as options of the connector."""
        return {"url": self.daemon.address.url(), "apiUrl": self.daemon.admin}

    @contextmanager
    def channel(self) -> Iterator[Any]:
        """A channel of pika's in confirm mode."""
        parameters = pika.ConnectionParameters(self.daemon.address.host, self.daemon.address.port)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.confirm_delivery()
            yield channel

    def declare(self, queue: str, arguments: Mapping[str, object] | None = None) -> None:
        """Declare a durable queue."""
        with self.channel() as channel:
            channel.queue_declare(queue, durable=True, arguments=dict(arguments or {}))

    def declare_stream(self, queue: str, partitions: int = 1, **arguments: object) -> None:
        """Declare a stream."""
        given = {f"x-{name.replace('_', '-')}": value for name, value in arguments.items()}
        self.declare(queue, {"x-queue-type": "stream", "x-partitions": partitions} | given)

    def publish(self, queue: str, bodies: Sequence[bytes], **properties: Any) -> None:
        """Publish in order, in a single transaction: the body determines the partition."""
        parameters = pika.ConnectionParameters(self.daemon.address.host, self.daemon.address.port)
        with pika.BlockingConnection(parameters) as connection:
            channel = connection.channel()
            channel.tx_select()
            for body in bodies:
                headers = {"x-partition-key": body.decode(errors="replace")[:50]}
                given = pika.BasicProperties(**({"delivery_mode": 2, "headers": headers} | properties))
                channel.basic_publish("", queue, body, given)
            channel.tx_commit()
