"""A stand-in for Docker's engine whose containers are brokers of this project.

It answers what aio-pika's suite asks; paths and fields are those of Docker's Engine API.
"""

import json
from collections.abc import Iterable, Sequence
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from threading import Thread
from typing import Any, Self

from tests.support.daemon.certificates import Certificates, secure_address
from tests.support.daemon.daemon import Daemon, DaemonStarter

AMQP = "5672/tcp"
AMQPS = "5671/tcp"


class Container:
    """A broker that can end and run again, with the same port for AMQP and the same data."""

    def __init__(self, start_daemon: DaemonStarter, data_dir: Path, options: Sequence[str]) -> None:
        """Begin without containers. `options` are flags of the broker; with any it has TLS."""
        self._start_daemon = start_daemon
        self._data_dir = data_dir
        self._options = options
        self.runs: list[Daemon] = []

    @property
    def ports(self) -> dict[str, int]:
        """The ports of this machine by the ports of the container."""
        ports = {AMQP: self.runs[-1].address.port}
        return ports | {AMQPS: secure_address(self.runs[-1]).port} if self._options else ports

    def start(self) -> None:
        """Run the broker."""
        port = self.ports[AMQP] if self.runs else 0
        self.runs.append(self._start_daemon(*self._options, data_dir=self._data_dir, port=port))

    def execute(self, command: Sequence[str]) -> None:
        """Run a command as RabbitMQ would in its container."""
        match command:
            case ["rabbitmqctl", "stop_app"]:
                self.runs[-1].stop()
            case ["rabbitmqctl", "start_app"]:
                self.start()
            case _:
                raise AssertionError(f"no such command: {command}")

    def kill(self) -> None:
        """End the broker as a crash would."""
        self.runs[-1].kill()


class ContainerEngine(ThreadingHTTPServer):
    """The engine, which listens while it is used as a context."""

    def __init__(self, start_daemon: DaemonStarter, folder: Path) -> None:
        super().__init__(("127.0.0.1", 0), Request)
        self._start_daemon = start_daemon
        self._folder = folder
        self._certificates = Certificates(folder / "certificates")
        self._containers: list[Container] = []
        self._commands: list[tuple[Container, list[str]]] = []

    def __enter__(self) -> Self:
        Thread(target=self.serve_forever).start()
        return self

    def __exit__(self, *_: object) -> None:
        self.shutdown()
        self.server_close()

    @property
    def docker_host(self) -> str:
        """Return the engine's address, in the form of the environment variable DOCKER_HOST."""
        return f"tcp://127.0.0.1:{self.server_port}"

    @property
    def runs(self) -> list[Daemon]:
        """Every broker that has been run."""
        return [daemon for container in self._containers for daemon in container.runs]

    def answer(self, method: str, path: str, body: Any) -> object:
        """Do a request; return the body of its answer."""
        match (method, *path.strip("/").split("/")):
            case ("POST", "images", "create") | ("DELETE", "containers", _):
                pass  # nothing to fetch; a container is deleted with the folder of the test
            case "POST", "containers", "create":
                return {"Id": self._create(body["ExposedPorts"])}
            case "GET", "containers", number, "json":
                ports = self._containers[int(number)].ports
                bound = {inner: [{"HostPort": str(outer)}] for inner, outer in ports.items()}
                return {"NetworkSettings": {"Ports": bound}}
            case "POST", "containers", number, "start":
                self._containers[int(number)].start()
            case "POST", "containers", number, "kill":
                self._containers[int(number)].kill()
            case "POST", "containers", number, "exec":
                self._commands.append((self._containers[int(number)], body["Cmd"]))
                return {"Id": str(len(self._commands) - 1)}
            case "POST", "exec", number, "start":
                container, command = self._commands[int(number)]
                container.execute(command)
            case "GET", "exec", _, "json":
                return {"Running": False, "ExitCode": 0}  # the container ends before its start is answered
            case _:
                raise AssertionError(f"no such request: {method} {path}")
        return None

    def _create(self, exposed: Iterable[str]) -> str:
        number = str(len(self._containers))
        options = self._certificates.options() if AMQPS in exposed else ()
        self._containers.append(Container(self._start_daemon, self._folder / number, options))
        return number


class Request(BaseHTTPRequestHandler):
    """A request to the engine."""

    def _answer(self) -> None:
        assert isinstance(self.server, ContainerEngine)
        body = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        try:
            document = self.server.answer(
                self.command, self.path.partition("?")[0], json.loads(body or "null")
            )
            status, text = 200, json.dumps(document) if document is not None else ""
        except AssertionError as error:  # a broker has not started or stopped as it should
            status, text = 500, str(error)
        self.send_response(status)
        self.end_headers()
        self.wfile.write(text.encode())

    do_GET = do_POST = do_DELETE = _answer  # noqa: N815  the names that http.server looks for

    def log_message(self, *_: object) -> None:
        """Say nothing about requests."""
