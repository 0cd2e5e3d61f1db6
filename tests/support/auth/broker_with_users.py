"""Brokers with users: without sockets, and data folders with users for a first start."""

import base64
import hashlib
import time
from collections.abc import Callable
from pathlib import Path

from pamqp import base
from pamqp.commands import Basic, Channel, Connection

from broker.auth.access_control import MECHANISMS, AccessControl
from broker.auth.passwords import Password, import_hash
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.ports import MessageStore
from broker.store.disk import RealDisk
from broker.store.restore import Recovered
from broker.store.sync import DiskSyncer
from tests.support.adapters.connection_without_socket import CAPABILITIES, BrokerBench, Client091
from tests.support.amqp091.frames import body_frames, header_bytes, method_bytes
from tests.support.core.hand_clock import HandClock
from tests.support.store.hand_log import file_log

ALL = ".*"


def quick_password(password: str, digest: str = "sha256") -> Password:
    """A password as RabbitMQ hashes it: checking it takes no time."""
    salt = b"salt"
    hashed = hashlib.new(digest, salt + password.encode()).digest()
    return import_hash(base64.b64encode(salt + hashed).decode(), f"rabbit_password_hashing_{digest}")


def gate(users: Users, anonymous: str = "", iterations: int = 4096) -> AccessControl:
    """The access control of users, which checks passwords at once."""
    return AccessControl(
        users, _never, lambda work, answer: answer(work()), MECHANISMS, anonymous, iterations
    )


def _never(seconds: float, call: Callable[[], None]) -> None:
    raise AssertionError(f"nothing should wait for {seconds} s")


class UserBench(BrokerBench):
    """A broker bench with real users: `boss` may do everything in `/`, `ann` what a test permits."""

    def __init__(self) -> None:
        self.users = Users(MessageStore())
        self.gate = gate(self.users)
        super().__init__(self.gate)
        connections = self.server.connections
        self.users.on_rights_changed = connections.on_rights_changed
        self.users.on_deleted = connections.on_user_deleted
        self.broker.leaving += [connections.on_vhost_deleted, self.users.forget_vhost]
        self.broker.left.append(connections.on_vhost_released)
        for name in ("boss", "ann"):
            self.users.add(name, quick_password(name))
        self.users.permit("boss", "/", ALL, ALL, ALL)

    def knock(self, user: str, vhost: str = "/") -> Client091:
        """A client that has sent everything up to connection.open."""
        client = self.connect()
        client.send(Connection.StartOk({"capabilities": CAPABILITIES}, "PLAIN", f"\0{user}\0{user}"))
        client.send(Connection.TuneOk(2047, 131072, 0))
        client.frames()
        client.send(Connection.Open(vhost))
        return client

    def enter(self, user: str, vhost: str = "/") -> Client091:
        """A client with an open connection and channel 1."""
        client = self.knock(user, vhost)
        (opened,) = client.frames()
        assert isinstance(opened, Connection.OpenOk), opened
        client.connection.receive(method_bytes(Channel.Open(), 1))
        client.frames()
        return client


def user_bench() -> UserBench:
    """Return a bench with queues q and dlq, exchanges x (direct), y (fanout) and t (topic)."""
    bench = UserBench()
    vhost = bench.broker.vhosts["/"]
    for name in ("q", "dlq"):
        vhost.declarations.declare_queue(name, False, None, False, {})
    for name, kind in (("x", "direct"), ("y", "fanout"), ("t", "topic")):
        vhost.declarations.declare_exchange(name, kind, False, False, False, {})
    vhost.declarations.bind_queue("q", "x", "k", {})
    vhost.declarations.bind_exchange("y", "x", "k", {})
    return bench


def access_refused_text(what: str, kind: str, name: str) -> str:
    """Return RabbitMQ's reply text. [rabbit_access_control, check_resource_access]"""
    return f"403 ACCESS_REFUSED - {what} access to {kind} '{name}' in vhost '/' refused for user 'ann'"


def refusal(client: Client091, command: base.Frame) -> str | None:
    """Send a method and return the reply text if the broker closes channel 1, else None."""
    client.send(command, 1)
    client.bench.store.complete()
    return close_text(client)


def close_text(client: Client091) -> str | None:
    """The text with which channel 1 was closed, after which it is reopened; None if it was not."""
    for frame in client.frames():
        if isinstance(frame, Channel.Close):
            client.send(Channel.CloseOk(), 1)
            client.send(Channel.Open(), 1)
            client.frames()
            return f"{frame.reply_code} {frame.reply_text}"
    return None


def publish(exchange: str, key: str, properties: Basic.Properties | None = None, body: bytes = b"m") -> bytes:
    """A message on channel 1, to any exchange."""
    command = Basic.Publish(exchange=exchange, routing_key=key)
    return b"".join(
        [method_bytes(command, 1), header_bytes(len(body), properties, 1), *body_frames(body, 1, 4096)]
    )


def folder_with_users(folder: Path, fill: Callable[[Users, Broker], None]) -> Path:
    """A data folder in which `fill` has made virtual hosts and users, as a broker that stopped leaves it."""
    folder.mkdir(parents=True, exist_ok=True)
    disk = RealDisk()
    broker: Broker | None = None
    log = file_log(
        str(folder), disk, DiskSyncer(disk), time.monotonic, lambda: broker.describe() if broker else []
    )
    broker = Broker(log, Counters(), lambda: "x", HandClock().schedule)
    users = Users(log)
    broker.appliers["user"] = users.apply
    broker.definers.append(users.describe)
    log.recover(Recovered(broker))
    fill(users, broker)
    log.close()
    return folder
