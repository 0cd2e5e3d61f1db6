"""Attacks on the ports of a broker: each kind is a visit of a hostile client; all kinds run at once."""

from __future__ import annotations

import asyncio
import base64
import json
import os
import random
import resource
import ssl
import struct
from collections import Counter
from collections.abc import Awaitable, Callable, Mapping
from contextlib import suppress
from typing import Final
from urllib.parse import quote

from pamqp.commands import Basic, Channel, Connection, Exchange, Queue
from pamqp.common import FieldTable

from protocol.amqp10.composing import encode_composite
from protocol.amqp10.composites import Source, Target
from protocol.amqp10.performatives import Attach, Begin, Detach, Flow, Open, SaslInit, SaslResponse, Transfer
from tests.support.amqp091.frames import (
    BODY,
    HEAD,
    PROTOCOL_HEADER,
    frame_bytes,
    header_bytes,
    method_bytes,
    publish_bytes,
)
from tests.support.amqp10.peer import AMQP, SASL, amqp, sasl

ADDRESSES: Final = tuple(f"127.0.0.{number}" for number in range(2, 10))
"""The addresses of the attackers. Well-behaved clients have another address."""

VHOST: Final = "yard"
PLAIN_USER: Final = "mallory"  # no tags; may do everything in the virtual host
TAGGED_USER: Final = "curious"  # may write policies there
MIB: Final = 1 << 20
READ_BYTES: Final = 65536
LONGEST_S: Final = 60.0  # an attack's end

PATTERNS: Final = (
    "(a+)+$",
    "(?i)" + "[ -\U0010ffff]" * 203,
    "^(?!amq\\.)(?!m).*",
    "(((((.*)*)*)*)*)*x",
    "(?=a)(?=b)" * 50,
    "(",
    "(?<!a)b",
    "(a|b|ab)*" * 100,
    "x{1000}{1000}",
    "(" * 3000 + ")" * 3000,
    "a" * 60000,
)
SELECTORS: Final = (
    "a LIKE '%a%a%a%a%a%a%a%a%b'",
    "(" * 2000 + "a = 1" + ")" * 2000,
    " OR ".join(f"a = {number}" for number in range(3000)),
    "NOT " * 3000 + "TRUE",
    "a = ",
    "a IN (" + ",".join(f"'{number}'" for number in range(3000)) + ")",
)


class Line:
    """A connection of an attacker."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    async def send(self, data: bytes) -> None:
        """Send bytes as they are."""
        self.writer.write(data)
        await self.writer.drain()

    async def trickle(self, data: bytes, seconds: float) -> None:
        """Send a byte each so many seconds."""
        for at in range(len(data)):
            await self.send(data[at : at + 1])
            await asyncio.sleep(seconds)

    async def swallow(self, seconds: float) -> None:
        """Read until the broker hangs up, or for so many seconds."""
        with suppress(TimeoutError):
            async with asyncio.timeout(seconds):
                while await self.reader.read(READ_BYTES):
                    pass

    async def frame(self) -> bytes:
        """The payload of the next frame of AMQP 0-9-1."""
        _, _, size = HEAD.unpack(await self.reader.readexactly(HEAD.size))
        return (await self.reader.readexactly(size + 1))[:-1]

    async def frame10(self) -> bytes:
        """The next frame of AMQP 1.0 after its size."""
        size = int.from_bytes(await self.reader.readexactly(4), "big")
        return await self.reader.readexactly(size - 4)


class Attacker:
    """A hostile client that makes visits, in sequence."""

    def __init__(self, ports: Mapping[str, int], rng: random.Random, context: ssl.SSLContext) -> None:
        self.ports = ports
        self.rng = rng
        self.context = context
        self._open: list[Line] = []

    async def visit(self, attack: Attack) -> None:
        """Make a visit, and leave, in order or not."""
        try:
            with suppress(OSError, TimeoutError, asyncio.IncompleteReadError):
                async with asyncio.timeout(LONGEST_S):
                    await attack(self)
        finally:
            for line in self._open:
                if self.rng.random() < 0.5:
                    line.writer.transport.abort()
                else:
                    line.writer.close()
            self._open.clear()

    async def connect(self, port: str, encrypted: bool = False) -> Line:
        """Connect to a port from a local address."""
        line = Line(
            *await asyncio.open_connection(
                "127.0.0.1",
                self.ports[port],
                ssl=self.context if encrypted else None,
                local_addr=(self.rng.choice(ADDRESSES), 0),
            )
        )
        self._open.append(line)
        return line

    async def hold(self) -> None:
        """Keep everything open for a while."""
        await asyncio.sleep(self.rng.uniform(1, 30))

    def noise(self, most: int) -> bytes:
        """Return at most so many random bytes."""
        return self.rng.randbytes(self.rng.randint(1, most))

    def name(self) -> str:
        """The name of a queue or an exchange that an attacker makes."""
        return f"m.{self.rng.randrange(40)}"

    def spoil(self, data: bytes) -> bytes:
        """Change some of the bytes, or leave some out."""
        spoiled = bytearray(data)
        for _ in range(self.rng.randint(1, 4)):
            at = self.rng.randrange(len(spoiled))
            if self.rng.random() < 0.7:
                spoiled[at] = self.rng.randrange(256)
            else:
                del spoiled[at : at + self.rng.randint(1, 8)]
                spoiled += b"\0"
        return bytes(spoiled)

    async def open(self, user: str = PLAIN_USER, password: str = PLAIN_USER, port: str = "amqp") -> Line:
        """Log in over AMQP 0-9-1, open the virtual host and a channel. Raises OSError: refused."""
        line = await self.connect(port)
        await line.send(PROTOCOL_HEADER)
        await line.frame()
        await line.send(method_bytes(_start_ok("PLAIN", f"\0{user}\0{password}")))
        if struct.unpack_from(">HH", await line.frame()) != (10, 30):
            raise ConnectionError("the log-in was refused")
        await line.send(
            method_bytes(Connection.TuneOk(2047, 131072, 0)) + method_bytes(Connection.Open(VHOST))
        )
        await line.frame()
        await line.send(method_bytes(Channel.Open(), 1))
        await line.frame()
        return line

    async def open10(self, user: str = PLAIN_USER, password: str = PLAIN_USER) -> Line:
        """Log in over AMQP 1.0, open the virtual host and a session. Raises OSError: refused."""
        line = await self.connect("amqp")
        await line.send(SASL + sasl(SaslInit(mechanism="PLAIN", initial_response=_plain(user, password))))
        await line.reader.readexactly(8)
        await line.frame10()
        outcome = await line.frame10()
        if b"\x50\x00" not in outcome[4:]:
            raise ConnectionError("the log-in was refused")
        opening = Open(container_id="flood", hostname=f"vhost:{VHOST}")
        begin = Begin(next_outgoing_id=0, incoming_window=100, outgoing_window=100)
        await line.send(AMQP + amqp(opening) + amqp(begin))
        await line.reader.readexactly(8)
        return line


Attack = Callable[[Attacker], Awaitable[None]]


def _start_ok(mechanism: str, response: str) -> Connection.StartOk:
    capabilities: FieldTable = {"capabilities": {"authentication_failure_close": True}}
    return Connection.StartOk(capabilities, mechanism, response)


def _plain(user: str, password: str) -> bytes:
    return f"\0{user}\0{password}".encode()


def _basic(user: str, password: str) -> str:
    return "Authorization: Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def _request(method: str, path: str, *lines: str, body: bytes = b"") -> bytes:
    head = "".join(f"{line}\r\n" for line in (f"{method} {path} HTTP/1.1", "Host: x", *lines))
    if body:
        head += f"Content-Length: {len(body)}\r\n"
    return head.encode() + b"\r\n" + body


# -- any port


async def half_open(attacker: Attacker) -> None:
    """Connect, and say nothing."""
    await attacker.connect(attacker.rng.choice(list(attacker.ports)))
    await attacker.hold()


async def noise(attacker: Attacker) -> None:
    """Send random bytes."""
    line = await attacker.connect(attacker.rng.choice(list(attacker.ports)))
    await line.send(attacker.noise(20_000))
    await line.swallow(5)


# -- HTTP


async def http_slow_head(attacker: Attacker) -> None:
    """Send a head byte by byte."""
    line = await attacker.connect("admin")
    await line.trickle(_request("GET", "/api/overview", "X-Slow: " + "a" * 40), 0.5)


async def http_slow_body(attacker: Attacker) -> None:
    """Send a body byte by byte, or stop in the middle."""
    line = await attacker.connect("admin")
    known = _basic(PLAIN_USER, PLAIN_USER if attacker.rng.random() < 0.5 else "wrong")
    await line.send(_request("PUT", f"/api/queues/{VHOST}/m.1", known, "Content-Length: 100000"))
    await line.trickle(b"{" * attacker.rng.randint(1, 20), 1.0)
    await attacker.hold()


async def http_huge_head(attacker: Attacker) -> None:
    """Send a head of up to a megabyte."""
    line = await attacker.connect("admin")
    await line.send(_request("GET", "/api/overview", "X-Huge: " + "a" * attacker.rng.randint(2000, MIB)))
    await line.swallow(5)


async def http_huge_body(attacker: Attacker) -> None:
    """Send a body of megabytes, whole or chunked, with credentials or without."""
    line = await attacker.connect("admin")
    who = attacker.rng.choice((_basic(PLAIN_USER, PLAIN_USER), _basic("guest", "wrong"), "X: y"))
    path = attacker.rng.choice(("/api/definitions", f"/api/exchanges/{VHOST}/amq.default/publish", "/x"))
    if attacker.rng.random() < 0.5:
        await line.send(_request("POST", path, who, f"Content-Length: {20 * MIB}"))
        piece = b" " * READ_BYTES
    else:
        await line.send(_request("POST", path, who, "Transfer-Encoding: chunked"))
        piece = b"10000\r\n" + b" " * READ_BYTES + b"\r\n"
    for _ in range(attacker.rng.randint(1, 200)):
        await line.send(piece)


async def http_malformed(attacker: Attacker) -> None:
    """Send an invalid request."""
    line = await attacker.connect("admin")
    whole = attacker.rng.choice(
        (
            _request("POST", "/api/x", "Transfer-Encoding: chunked", "Content-Length: 5") + b"5\r\nhello\r\n",
            _request("POST", "/api/x", "Transfer-Encoding: chunked") + b"zz\r\n",
            _request("POST", "/api/x", "Content-Length: -1"),
            b"GET / HTTP/1.1\nHost: x\n\n",
            b"GET / HTTP/1.1\r\nHost: x\r\n folded\r\n\r\n",
            b"GET /\xff\xfe HTTP/1.1\r\nHost: \xff\r\n\r\n",
            b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
            attacker.spoil(_request("GET", "/api/overview", _basic(PLAIN_USER, PLAIN_USER))),
        )
    )
    await line.send(whole)
    await line.swallow(2)


async def http_hung_up(attacker: Attacker) -> None:
    """Ask, and hang up before the answer."""
    line = await attacker.connect("admin")
    password = attacker.rng.choice((PLAIN_USER, f"wrong {attacker.rng.randrange(1000)}"))
    path = attacker.rng.choice(("/api/whoami", "/api/definitions", "/metrics", f"/api/queues/{VHOST}"))
    await line.send(_request("GET", path, _basic(PLAIN_USER, password)))


async def http_wrong_password(attacker: Attacker) -> None:
    """Guess the password of an existing or a missing user."""
    line = await attacker.connect("admin")
    name = attacker.rng.choice(("guest", "witness", PLAIN_USER, f"nobody{attacker.rng.randrange(1000)}"))
    wrong = f"{attacker.rng.randrange(10**9)}" * attacker.rng.choice((1, 1, 1000))
    await line.send(_request("GET", "/api/overview", _basic(name, wrong)))
    await line.reader.read(READ_BYTES)


async def http_slow_reader(attacker: Attacker) -> None:
    """Request much, many times in a single write, and read nothing."""
    line = await attacker.connect("admin")
    path = attacker.rng.choice(("/metrics", f"/api/queues/{VHOST}", f"/api/exchanges/{VHOST}"))
    await line.send(_request("GET", path, _basic(TAGGED_USER, TAGGED_USER)) * attacker.rng.randint(10, 200))
    await attacker.hold()


async def http_forbidden(attacker: Attacker) -> None:
    """Write policies, users and definitions, and list by expressions, without a tag that allows it."""
    line = await attacker.connect("admin")
    pattern = attacker.rng.choice(PATTERNS)
    policy = json.dumps({"pattern": pattern, "definition": {"max-length": 1}}).encode()
    user = b'{"password":"x","tags":"administrator"}'
    known = _basic(PLAIN_USER, PLAIN_USER)
    listing = f"/api/queues/{VHOST}?page=1&use_regex=true&name={quote(pattern[:3000])}"
    requests = (
        _request("PUT", "/api/policies/%2F/p", known, body=policy),
        _request("PUT", f"/api/permissions/{VHOST}/{PLAIN_USER}", known, body=policy),
        _request("PUT", "/api/users/eve", known, body=user),
        _request("GET", listing, known),
        _request("DELETE", "/api/vhosts/%2F", known),
    )
    await line.send(attacker.rng.choice(requests))
    await line.reader.read(READ_BYTES)


async def http_patterns(attacker: Attacker) -> None:
    """Write policies and list queues with hostile expressions, as a permitted user."""
    line = await attacker.connect("admin")
    pattern = attacker.rng.choice(PATTERNS)
    known = _basic(TAGGED_USER, TAGGED_USER)
    if attacker.rng.random() < 0.5:
        body = json.dumps({"pattern": pattern, "definition": {"max-length": 100}}).encode()
        name = attacker.rng.randrange(20)
        await line.send(_request("PUT", f"/api/policies/{VHOST}/p{name}", known, body=body))
    else:
        listing = f"/api/queues/{VHOST}?page=1&use_regex=true&name={quote(pattern[:3000])}"
        await line.send(_request("GET", listing, known))
    await line.reader.read(READ_BYTES)


# -- AMQP, before the log-in


async def wrong_password(attacker: Attacker) -> None:
    """Guess over AMQP 0-9-1 and 1.0, in PLAIN."""
    name = attacker.rng.choice(("guest", "witness", PLAIN_USER, f"nobody{attacker.rng.randrange(1000)}"))
    opening = attacker.open if attacker.rng.random() < 0.5 else attacker.open10
    await opening(name, f"{attacker.rng.randrange(10**9)}")


async def wrong_scram(attacker: Attacker) -> None:
    """Guess over AMQP 0-9-1 and 1.0, in SCRAM-SHA-256: a proof that is none, or no proof."""
    name = attacker.rng.choice(("guest", "witness", f"nobody{attacker.rng.randrange(1000)}"))
    first = f"n,,n={name},r=flood"
    line = await attacker.connect("amqp")
    final = f"c=biws,r=flood,p={base64.b64encode(attacker.rng.randbytes(32)).decode()}"
    if attacker.rng.random() < 0.5:
        await line.send(PROTOCOL_HEADER)
        await line.frame()
        await line.send(method_bytes(_start_ok("SCRAM-SHA-256", first)))
        challenge = (await line.frame())[8:].decode().split(",")[0]
        await line.send(method_bytes(Connection.SecureOk(final.replace("r=flood", challenge))))
    else:
        await line.send(SASL)
        await line.send(sasl(SaslInit(mechanism="SCRAM-SHA-256", initial_response=first.encode())))
        await line.reader.readexactly(8)
        await line.frame10()
        challenge = "r=" + (await line.frame10()).partition(b"r=")[2].partition(b",")[0].decode()
        await line.send(sasl(SaslResponse(response=final.replace("r=flood", challenge).encode())))
    if attacker.rng.random() < 0.7:
        await line.swallow(5)


async def handshake_cut(attacker: Attacker) -> None:
    """Stop somewhere in the handshake, or spoil it."""
    line = await attacker.connect("amqp")
    whole = attacker.rng.choice(
        (
            PROTOCOL_HEADER
            + method_bytes(_start_ok("PLAIN", f"\0{PLAIN_USER}\0{PLAIN_USER}"))
            + method_bytes(Connection.TuneOk(2047, 131072, 0))
            + method_bytes(Connection.Open(VHOST)),
            SASL
            + sasl(SaslInit(mechanism="PLAIN", initial_response=_plain(PLAIN_USER, PLAIN_USER)))
            + AMQP
            + amqp(Open(container_id="flood", hostname=f"vhost:{VHOST}")),
        )
    )
    if attacker.rng.random() < 0.5:
        whole = attacker.spoil(whole)
    await line.send(whole[: attacker.rng.randint(1, len(whole))])
    if attacker.rng.random() < 0.5:
        await attacker.hold()


# -- AMQP, logged in


async def frame_cut(attacker: Attacker) -> None:
    """Stop in the middle of a frame or of a message."""
    line = await attacker.open()
    whole = publish_bytes(attacker.name(), attacker.noise(20_000), persistent=True)
    await line.send(whole[: attacker.rng.randint(1, len(whole) - 1)])
    if attacker.rng.random() < 0.5:
        await attacker.hold()


async def malformed(attacker: Attacker) -> None:
    """Send frames of AMQP 0-9-1 with wrong bytes in them."""
    line = await attacker.open()
    name = attacker.name()
    wholes = (
        method_bytes(Queue.Declare(queue=name, arguments={"x-max-length": 10, "x-expires": 1000}), 1),
        method_bytes(Basic.Consume(queue=name, arguments={"x-priority": 3}), 1),
        method_bytes(Queue.Bind(queue=name, exchange="amq.headers", arguments={"x-match": "all", "a": 1}), 1),
        publish_bytes(name, b"body", properties=Basic.Properties(headers={"a": {"b": [1, "c"]}}, priority=3)),
        method_bytes(Basic.Ack(7, True), 1),
        frame_bytes(attacker.rng.randrange(256), attacker.rng.randrange(65536), attacker.noise(300)),
    )
    await line.send(b"".join(attacker.spoil(attacker.rng.choice(wholes)) for _ in range(5)))
    await line.swallow(2)


async def malformed10(attacker: Attacker) -> None:
    """Send frames of AMQP 1.0 with wrong bytes in them, and deliveries that do not end."""
    line = await attacker.open10()
    address = f"/queues/{attacker.name()}"
    attach = Attach(name="l", handle=0, role=False, source=Source(), target=Target(address=address))
    receive = Attach(name="r", handle=1, role=True, source=Source(address=address), target=Target())
    attach.initial_delivery_count = 0
    transfer = Transfer(handle=0, delivery_id=0, delivery_tag=b"t", more=True)
    wholes = (
        amqp(attach),
        amqp(receive),
        amqp(transfer, payload=attacker.noise(20_000)),
        amqp(Flow(incoming_window=5, next_outgoing_id=0, outgoing_window=5, handle=1, link_credit=10)),
        amqp(Detach(handle=0, closed=True)),
        b"\0\0\0\x0c\x02\0\0\0" + attacker.rng.randbytes(4),
        b"\xff\xff\xff\xff\x02\0\0\0",
        encode_composite(attach),
    )
    await line.send(amqp(attach) + amqp(receive) + attacker.rng.choice(wholes))
    await line.send(attacker.spoil(attacker.rng.choice(wholes)))
    await line.swallow(2)


async def many_channels(attacker: Attacker) -> None:
    """Open every channel there may be, with a queue and a consumer on some."""
    line = await attacker.open()
    opening = [method_bytes(Channel.Open(), number) for number in range(2, 2048)]
    await line.send(b"".join(opening))
    for number in range(2, attacker.rng.randint(3, 60)):
        declare = method_bytes(Queue.Declare(queue=f"x.{number}", exclusive=True, nowait=True), number)
        await line.send(declare + method_bytes(Basic.Consume(queue=f"x.{number}", nowait=True), number))
    await line.swallow(attacker.rng.uniform(0.1, 5))


async def declarations(attacker: Attacker) -> None:
    """Declare, bind, publish and delete, without waiting for anything."""
    line = await attacker.open()
    parts: list[bytes] = []
    for _ in range(attacker.rng.randint(10, 100)):
        name = attacker.name()
        options: FieldTable = {"x-max-length": 100, "x-expires": 60_000}
        parts += [
            method_bytes(Queue.Declare(queue=name, durable=True, nowait=True, arguments=options), 1),
            method_bytes(
                Exchange.Declare(exchange=f"e{name}", exchange_type="topic", durable=True, nowait=True), 1
            ),
            method_bytes(Queue.Bind(queue=name, exchange=f"e{name}", routing_key="a.*.#", nowait=True), 1),
            publish_bytes(name, attacker.noise(500), persistent=True),
        ]
        if attacker.rng.random() < 0.7:
            parts.append(method_bytes(Queue.Delete(queue=name, nowait=True), 1))
            parts.append(method_bytes(Exchange.Delete(exchange=f"e{name}", nowait=True), 1))
    await line.send(b"".join(parts))
    await line.swallow(attacker.rng.uniform(0.1, 2))


async def selectors(attacker: Attacker) -> None:
    """Consume with hostile selectors."""
    line = await attacker.open()
    name = attacker.name()
    await line.send(method_bytes(Queue.Declare(queue=name, durable=True, arguments={"x-max-length": 100}), 1))
    arguments: FieldTable = {"x-filter-jms-selector": attacker.rng.choice(SELECTORS)}
    await line.send(method_bytes(Basic.Consume(queue=name, arguments=arguments), 1))
    headers: FieldTable = {"a": "a" * 5000}
    await line.send(publish_bytes(name, b"x", properties=Basic.Properties(headers=headers)) * 20)
    await line.swallow(2)


async def unfinished_body(attacker: Attacker) -> None:
    """Announce a large message, and send a part of it."""
    line = await attacker.open()
    size = 64 * MIB
    await line.send(method_bytes(Basic.Publish(routing_key=attacker.name()), 1) + header_bytes(size, None, 1))
    piece = frame_bytes(BODY, 1, b"x" * 131_000)
    for _ in range(attacker.rng.randint(1, 40)):
        await line.send(piece)
    await attacker.hold()


# -- WebSocket and TLS

UPGRADE: Final = _request(
    "GET",
    "/ws",
    "Upgrade: websocket",
    "Connection: Upgrade",
    "Sec-WebSocket-Key: dGhlIHNhbXBsZSBub25jZQ==",
    "Sec-WebSocket-Version: 13",
    "Sec-WebSocket-Protocol: amqp",
)


async def websocket(attacker: Attacker) -> None:
    """Upgrade, or nearly, and send invalid frames or frames without AMQP."""
    line = await attacker.connect("ws")
    await line.send(attacker.rng.choice((UPGRADE, UPGRADE, attacker.spoil(UPGRADE), UPGRADE[:-4])))
    data = attacker.rng.choice((PROTOCOL_HEADER, attacker.noise(100), SASL))
    masked = bytes([0x82, 0x80 | len(data)]) + b"\0\0\0\0" + data
    huge = b"\x82\xff\x7f\xff\xff\xff\xff\xff\xff\xff\0\0\0\0" + attacker.noise(5000)
    await line.send(attacker.rng.choice((masked, huge, attacker.noise(2000), masked[:3], masked * 50)))
    await line.swallow(attacker.rng.uniform(1, 10))


async def tls_cut(attacker: Attacker) -> None:
    """Begin to shake hands, and stop, or send something else."""
    port = attacker.rng.choice([name for name in attacker.ports if name.endswith("s")])
    line = await attacker.connect(port)
    sending = ssl.MemoryBIO()
    with suppress(ssl.SSLWantReadError):
        attacker.context.wrap_bio(ssl.MemoryBIO(), sending).do_handshake()
    hello = sending.read()
    choice = attacker.rng.randrange(4)
    if choice == 0:
        await line.send(hello[: attacker.rng.randint(1, len(hello))])
    elif choice == 1:
        await line.send(hello + attacker.noise(5000))
    elif choice == 2:
        await line.send(attacker.spoil(hello))
    else:
        await line.send(PROTOCOL_HEADER + attacker.noise(100))
    if attacker.rng.random() < 0.5:
        await attacker.hold()


async def tls_inside(attacker: Attacker) -> None:
    """Shake hands, and send something that is not spoken there."""
    port = attacker.rng.choice([name for name in attacker.ports if name.endswith("s")])
    line = await attacker.connect(port, encrypted=True)
    request = _request("GET", "/api/overview", _basic("guest", f"{attacker.rng.randrange(10**9)}"))
    await line.send(attacker.rng.choice((attacker.noise(5000), PROTOCOL_HEADER, request, UPGRADE)))
    await line.swallow(attacker.rng.uniform(0.1, 5))


ATTACKS: Final[dict[str, Attack]] = {
    attack.__name__: attack
    for attack in (
        half_open,
        noise,
        http_slow_head,
        http_slow_body,
        http_huge_head,
        http_huge_body,
        http_malformed,
        http_hung_up,
        http_wrong_password,
        http_slow_reader,
        http_forbidden,
        http_patterns,
        wrong_password,
        wrong_scram,
        handshake_cut,
        frame_cut,
        malformed,
        malformed10,
        many_channels,
        declarations,
        selectors,
        unfinished_body,
        websocket,
        tls_cut,
        tls_inside,
    )
}

OFTEN: Final = {"half_open": 4, "http_hung_up": 3, "http_wrong_password": 2, "handshake_cut": 2}


def attack(ports: dict[str, int], seconds: float, seed: int, at_once: int, names: list[str]) -> Counter[str]:
    """Attack for so many seconds, with so many clients at once. Returns how many visits of each kind."""
    os.nice(5)
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    return asyncio.run(_attack(ports, seconds, seed, at_once, names))


async def _attack(
    ports: dict[str, int], seconds: float, seed: int, at_once: int, names: list[str]
) -> Counter[str]:
    visits: Counter[str] = Counter()
    weights = [OFTEN.get(name, 1) for name in names]
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    asyncio.get_running_loop().set_exception_handler(lambda loop, context: None)  # broken handshakes

    async def client(number: int) -> None:
        attacker = Attacker(ports, random.Random(f"{seed} {number}"), context)
        while True:
            (name,) = attacker.rng.choices(names, weights)
            await attacker.visit(ATTACKS[name])
            visits[name] += 1
            await asyncio.sleep(attacker.rng.uniform(0, 0.5))

    clients = [asyncio.create_task(client(number)) for number in range(at_once)]
    ended, _ = await asyncio.wait(clients, timeout=seconds, return_when=asyncio.FIRST_EXCEPTION)
    for task in clients:
        task.cancel()
    await asyncio.gather(*clients, return_exceptions=True)
    for task in ended:
        task.result()
    return visits
