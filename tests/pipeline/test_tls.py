"""With `amqps` no clear text crosses the network: a wiretap sees neither password nor body."""

from __future__ import annotations

import base64
import contextlib
import socket
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.connector.choices import Choices
from pipeline.connector.server import ServerError, close_idle, make_server
from pipeline.connector.source import register
from pipeline.journal.source import register as register_journal
from tests.support.admin.api import Api
from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.pipeline.broker import Broker

pytestmark = pytest.mark.spark

USER, PASSWORD = "clerk", "the password in clear"
BODY = b"the body in clear"
ROWS = 200
ADMIN = ("--admin-tls-listen", "127.0.0.1:0", "--admin-tls-verify", "required")
SECRETS = (
    PASSWORD.encode(),
    base64.b64encode(f"{USER}:{PASSWORD}".encode()),
    BODY,
    base64.b64encode(BODY)[:20],
)


class Wiretap:
    """A TCP address in front of a port, which records all bytes of both directions."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._recorded: list[bytes] = []
        self._open: list[socket.socket] = []
        self._listening = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listening.getsockname()[1]
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        for each in (self._listening, *self._open):
            with contextlib.suppress(OSError):  # closed by the peer already
                each.shutdown(socket.SHUT_RDWR)
            each.close()

    def bytes(self) -> bytes:
        """The bytes so far."""
        return b"".join(self._recorded)

    def _accept(self) -> None:
        with contextlib.suppress(OSError):  # the tap is closed
            while True:
                client, _ = self._listening.accept()
                server = socket.create_connection(("127.0.0.1", self._port))
                self._open += [client, server]
                for source, target in ((client, server), (server, client)):
                    threading.Thread(target=self._copy, args=(source, target), daemon=True).start()

    def _copy(self, source: socket.socket, target: socket.socket) -> None:
        with contextlib.suppress(OSError):
            while data := source.recv(65536):
                self._recorded.append(data)
                target.sendall(data)
            target.shutdown(socket.SHUT_WR)


@pytest.fixture(scope="module")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture(scope="module")
def secured(
    tmp_path_factory: pytest.TempPathFactory, spark: SparkSession, certificates: Certificates
) -> Iterator[Broker]:
    """A broker that takes clients with a certificate only, where it speaks TLS."""
    register(spark)
    register_journal(spark)
    authority = str(certificates.folder / "ca.pem")
    options = certificates.options("--tls-verify", "required", *ADMIN)
    broker = Broker(
        tmp_path_factory.mktemp("secured"), *options, "--admin-tls-ca", authority, "--journal", "full"
    )
    with contextlib.closing(Api(broker.daemon.admin)) as api:
        api.put("users", USER, body={"password": PASSWORD, "tags": "monitoring"}, status=201)
        api.put(
            "permissions", "/", USER, body=dict.fromkeys(("configure", "read", "write"), ".*"), status=201
        )
    broker.declare_stream("stream")
    broker.declare("staged")
    broker.declare("out")
    for queue in ("stream", "staged"):
        broker.publish(queue, [BODY] * ROWS)
    yield broker
    close_idle()
    broker.stop()


def use_everything(spark: SparkSession, where: dict[str, str], folder: Path) -> None:
    """Read a stream in both ways, a staged queue and the journal; publish in both ways."""
    stream = {"subscribe": "stream", "startingOffsets": "earliest"}
    frame = spark.read.format("amqp").options(**where, **stream).load()
    assert frame.where(F.col("value") == BODY).count() == ROWS
    consumed = spark.read.format("amqp").options(**where, **stream, transport="amqp").load()
    assert consumed.where(F.col("value") == BODY).count() == ROWS
    journal = spark.read.format("amqp-journal").options(**where).load()
    assert journal.where("op = 'enqueue'").count() >= ROWS
    frame.select("value").write.format("amqp").mode("append").options(**where, routingKey="out").save()
    sink = {"guarantee": "exactly-once", "sinkName": folder.name, "routingKey": "out"}
    source = {"subscribe": "staged", "readerName": "reader", "startingOffsets": "earliest"}
    rows = spark.readStream.format("amqp").options(**where, **source).load().select("value")
    query = rows.writeStream.format("amqp").options(**where, **sink)
    query.option("checkpointLocation", str(folder)).trigger(availableNow=True).start().awaitTermination()


@pytest.mark.parametrize("clear", [False, True], ids=["TLS", "in clear, to show that the tap sees"])
def test_no_byte_of_a_password_or_body_is_in_clear(
    spark: SparkSession, secured: Broker, certificates: Certificates, tmp_path: Path, clear: bool
) -> None:
    daemon = secured.daemon
    ports = (
        (daemon.address.port, int(daemon.admin.rpartition(":")[2]))
        if clear
        else (secure_address(daemon).port, daemon.admin_tls.port)
    )
    taps = [Wiretap(port) for port in ports]
    amqp, api = (f"localhost:{tap.port}" for tap in taps)
    where = {"username": USER, "password": PASSWORD}
    if clear:
        where |= {"url": f"amqp://{amqp}", "apiUrl": f"http://{api}"}
    else:
        where |= {"url": f"amqps://{amqp}", "apiUrl": f"https://{api}"}
        where |= {
            "caFile": str(certificates.folder / "ca.pem"),
            "certFile": str(certificates.client("spark")),
        }
    try:
        use_everything(spark, where, tmp_path)
        seen = [tap.bytes() for tap in taps]
    finally:
        close_idle()
        for tap in taps:
            tap.close()

    assert all(len(each) > 10_000 for each in seen), "all of it went through the taps"
    found = [secret for secret in SECRETS if any(secret in each for each in seen)]
    assert found == (list(SECRETS[:3]) if clear else [])


def test_a_client_without_its_certificate_is_refused(secured: Broker, certificates: Certificates) -> None:
    tls_options = {
        "url": f"amqps://localhost:{secure_address(secured.daemon).port}",
        "apiUrl": f"https://localhost:{secured.daemon.admin_tls.port}",
        "caFile": str(certificates.folder / "ca.pem"),
        "retries": "0",
    }
    with pytest.raises(ServerError, match="cannot reach https://localhost"):
        make_server(Choices(tls_options)).get("whoami")
    own = certificates.client("spark")
    assert make_server(Choices(tls_options | {"certFile": str(own)})).get("whoami")["name"] == "guest"
    pem = own.read_text()
    key, certificate = own.with_suffix(".key"), own.with_suffix(".crt")
    split = pem.index("-----BEGIN CERTIFICATE")
    key.write_text(pem[:split])
    certificate.write_text(pem[split:])
    both = {"certFile": str(certificate), "keyFile": str(key)}
    assert make_server(Choices(tls_options | both)).get("whoami")["name"] == "guest"
