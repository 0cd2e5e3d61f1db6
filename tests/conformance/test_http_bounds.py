"""The admin port under attack: floods, slow peers, pages of other sites, and duties of HTTP servers."""

import base64
import socket
import struct
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.support.admin.api import Api, fetch
from tests.support.amqp091.peer import Dialler
from tests.support.daemon.daemon import PATIENCE_S, Daemon, DaemonStarter

pytestmark = pytest.mark.amqpd_only("looks at a daemon of its own")

LIMITED = (
    sys.executable,
    "-c",
    "import os, resource, sys; resource.setrlimit(resource.RLIMIT_NOFILE, (160, 160));"
    "os.execv(sys.argv[1], sys.argv[1:])",
)
"""A wrapper: the process may have 160 file descriptors, of which 80 are for connections, 20 for HTTP."""


class Crowd:
    """Sockets to the admin port."""

    def __init__(self) -> None:
        self.place = ("", 0)
        self.sockets: list[socket.socket] = []

    def gather(self, daemon: Daemon) -> None:
        """Go to a broker."""
        host, _, port = daemon.admin.removeprefix("http://").rpartition(":")
        self.place = (host, int(port))

    def send(self, data: bytes) -> socket.socket:
        made = socket.create_connection(self.place, timeout=PATIENCE_S)
        self.sockets.append(made)
        made.sendall(data)
        return made

    def hang_up(self) -> None:
        for each in self.sockets:
            each.close()
        self.sockets.clear()


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    found = Crowd()
    yield found
    found.hang_up()


@pytest.fixture
def api(daemon: Daemon) -> Iterator[Api]:
    client = Api(daemon.admin)
    yield client
    client.close()


def resident(daemon: Daemon) -> int:
    return int(Path(f"/proc/{daemon.pid}/statm").read_text().split()[1]) * 4096


def descriptors(daemon: Daemon) -> int:
    return len(list(Path(f"/proc/{daemon.pid}/fd").iterdir()))


def credentials(user: str, password: str) -> bytes:
    return base64.b64encode(f"{user}:{password}".encode())


def request(user: str, password: str, more: bytes = b"") -> bytes:
    head = b"GET /api/whoami HTTP/1.1\r\nHost: h\r\nAuthorization: Basic "
    return head + credentials(user, password) + b"\r\n" + more + b"\r\n"


def until(condition: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < end
        time.sleep(0.05)


def test_floods_leave_memory_descriptors_and_log_ins_alone(
    start_daemon: DaemonStarter, dial: Dialler, crowd: Crowd
) -> None:
    daemon = start_daemon().load_api()
    dial(daemon.address).open().close()
    with httpx.Client(auth=("guest", "guest"), timeout=PATIENCE_S) as client:
        client.get(f"{daemon.admin}/api/overview").raise_for_status()
    before, open_before = resident(daemon), descriptors(daemon)
    crowd.gather(daemon)
    for number in range(300):  # hung up while the password is checked
        crowd.send(request(f"user {number % 20}", "x" * 2000 + str(number))).close()
    for _ in range(300):  # half open
        crowd.send(b"GET / HTTP/1.1\r\nHost: h\r\nX: " + b"x" * 8000)
    for number in range(300):  # huge, and nobody wants it
        large = socket.create_connection(crowd.place, timeout=PATIENCE_S)
        large.setblocking(False)
        crowd.sockets.append(large)
        head = b"Content-Length: 67108864\r\n"
        large.send(request(f"nobody {number}", "x", head) + bytes(200_000))
    for number in range(300):  # waiting, each with another name
        crowd.send(request(f"name {number}", "wrong"))
    peer = dial(daemon.address)
    peer.open()
    peer.drop()
    assert fetch(f"{daemon.admin}/health/ready").status_code == 200
    assert descriptors(daemon) - open_before <= 256 + 10
    assert resident(daemon) - before < 50 * 2**20
    crowd.hang_up()
    until(lambda: descriptors(daemon) <= open_before + 2)
    assert resident(daemon) - before < 50 * 2**20
    assert "Traceback" not in daemon.log.text()
    assert daemon.log.text().count("too many HTTP connections") <= 20, "a flood does not fill the log"


def test_a_right_password_is_not_delayed_by_waiting_wrong_passwords(
    start_daemon: DaemonStarter, dial: Dialler, crowd: Crowd
) -> None:
    """The user has never logged in before: nothing of the password is remembered."""
    daemon = start_daemon().load_api()
    crowd.gather(daemon)
    crowd.send(request("guest", "wrong"))
    for number in range(200):
        crowd.send(request(f"user {number}", "wrong"))
    for _ in range(50):
        crowd.send(request("another", "wrong")).close()
    peer = dial(daemon.address)
    began = time.monotonic()
    peer.open()
    assert time.monotonic() - began < PATIENCE_S / 4
    peer.drop()
    crowd.hang_up()


def test_http_never_takes_the_descriptors_of_amqp_and_of_the_log(
    start_daemon: DaemonStarter, dial: Dialler, crowd: Crowd
) -> None:
    daemon = start_daemon("--segment-bytes", "64KiB", wrapper=LIMITED)
    publisher = dial(daemon.address).open().channel()
    publisher.declare("kept", durable=True)
    publisher.confirm_select()
    crowd.gather(daemon)
    for _ in range(300):
        crowd.send(b"GET / HTTP/1.1\r\nHost: h\r\n")
    daemon.log.wait_for("too many HTTP connections.*max=20")
    for tag in range(1, 21):
        publisher.publish(bytes(30_000), "kept")
        publisher.expect_confirms(tag, tag)
    newcomers = [dial(daemon.address).open() for _ in range(40)]
    assert newcomers[-1].channel().counts("kept") == (20, 0)
    assert fetch(f"{daemon.admin}/health/ready").status_code == 200
    for peer in [publisher.peer, *newcomers]:
        peer.drop()
    crowd.hang_up()


def test_settings_bound_connections_and_times(start_daemon: DaemonStarter, crowd: Crowd) -> None:
    times = ("--admin-header-timeout-ms", "300", "--admin-body-timeout-ms", "600")
    daemon = start_daemon(*times, "--admin-connections-per-address", "3").load_api()
    crowd.gather(daemon)
    slow = crowd.send(b"GET /")
    assert slow.recv(100).startswith(b"HTTP/1.1 408 ")
    body = crowd.send(request("guest", "guest", b"Content-Length: 100\r\n").replace(b"GET", b"POST") + b"x")
    assert b" 40" in body.recv(100)
    first, *others = [crowd.send(b"") for _ in range(4)]
    assert first.recv(100) == b""
    assert all(other.recv(100).startswith(b"HTTP/1.1 408 ") for other in others)
    crowd.hang_up()


FORM = {"content-type": "text/plain", "sec-fetch-mode": "navigate", "sec-fetch-dest": "document"}
"""The headers of Chromium for the form of a page, which is sent without a preflight request."""


@pytest.mark.parametrize(
    "headers",
    [
        {"origin": "http://evil.example", "sec-fetch-site": "cross-site", **FORM},
        {"origin": "http://evil.example", **FORM},
        {"origin": "null", "sec-fetch-site": "cross-site", **FORM},
        {"sec-fetch-site": "cross-site", "content-type": "application/json"},
        {"sec-fetch-site": "same-site", "content-type": "application/x-www-form-urlencoded"},
        {"origin": "http://127.0.0.1:1", "sec-fetch-site": "same-site", **FORM},
    ],
)
def test_pages_of_other_sites_change_nothing(daemon: Daemon, api: Api, headers: dict[str, str]) -> None:
    body = b'{"password": "x", "tags": "administrator"}'
    for method, path in (
        ("PUT", "users/mallory"),
        ("POST", "users/bulk-delete"),
        ("DELETE", "users/guest"),
        ("PATCH", "queues/%2F/q"),
        ("GET", "aliveness-test/%2F"),
    ):
        answer = api.client.request(method, f"{daemon.admin}/api/{path}", content=body, headers=headers)
        assert answer.status_code == 403, (method, answer.text)
        assert answer.json()["error"] == "forbidden"
    assert {user["name"] for user in api.get("users")} == {"guest"}
    assert api.client.get(f"{daemon.admin}/api/users", headers=headers).status_code == 200
    answer = api.client.post(f"{daemon.admin}/health/live", headers=headers)
    assert answer.status_code == 403


def test_requests_of_own_pages_and_tools_may_change_objects(daemon: Daemon, api: Api) -> None:
    url = f"{daemon.admin}/api/vhosts/made"
    for headers in (
        {"origin": daemon.admin, "sec-fetch-site": "same-origin", "content-type": "application/json"},
        {"sec-fetch-site": "none"},
        {},
        {"content-type": "application/x-www-form-urlencoded"},  # curl -d
    ):
        assert api.client.put(url, content=b"{}", headers=headers).status_code in (201, 204)
    assert api.client.delete(url).status_code == 204


def test_origins_of_a_setting_may_change_things(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon("--admin-origins", "https://console.example")
    api = Api(daemon.admin)
    for origin, status in (("https://console.example", 201), ("https://other.example", 403)):
        headers = {"origin": origin, "sec-fetch-site": "cross-site"}
        answer = api.client.put(f"{daemon.admin}/api/vhosts/made", json={}, headers=headers)
        assert answer.status_code == status
    api.close()


@pytest.mark.parametrize(
    ("path", "methods"),
    [
        ("/", "GET, HEAD, OPTIONS"),
        ("/metrics", "GET, HEAD, OPTIONS"),
        ("/health/ready", "GET, HEAD, OPTIONS"),
        ("/api/overview", "GET, HEAD, OPTIONS"),
        ("/api/vhosts/%2F", "GET, HEAD, PUT, DELETE, OPTIONS"),
        ("/api/queues/%2F/q", "GET, HEAD, PUT, PATCH, DELETE, OPTIONS"),
        ("/api/exchanges/%2F/amq.default/publish", "POST, OPTIONS"),
    ],
)
def test_allow_names_all_methods(daemon: Daemon, api: Api, path: str, methods: str) -> None:
    asked = httpx.request("OPTIONS", daemon.admin + path, timeout=PATIENCE_S)
    assert (asked.status_code, asked.content) == (200, b"")
    refused = api.client.request("TRACE", daemon.admin + path)
    assert refused.status_code == 405
    assert asked.headers["allow"] == refused.headers["allow"]
    assert set(asked.headers["allow"].split(", ")) == set(methods.split(", "))


@pytest.mark.parametrize("path", ["/metrics", "/health/live", "/api/overview", "/api/whoami", "/api/queues"])
def test_head_answers_as_get_without_a_body(daemon: Daemon, api: Api, path: str) -> None:
    got = api.client.get(daemon.admin + path)
    head = api.client.head(daemon.admin + path)
    assert (head.status_code, head.content) == (200, b"")
    assert head.headers["content-type"] == got.headers["content-type"]
    assert httpx.head(f"{daemon.admin}/api/overview", timeout=PATIENCE_S).status_code == 401
    assert api.client.head(f"{daemon.admin}/api/nothing").status_code == 404
    assert api.client.request("OPTIONS", f"{daemon.admin}/api/nothing").status_code == 404


def test_clients_that_break_off_leave_no_traceback(start_daemon: DaemonStarter, crowd: Crowd) -> None:
    daemon = start_daemon().load_api()
    crowd.gather(daemon)
    put = request("guest", "guest").replace(b"GET /api/whoami", b"PUT /api/vhosts/x")[:-2]
    for _ in range(5):
        crowd.send(put + b"Content-Length: 100\r\n\r\nhalf of it")
        crowd.send(put + b"Transfer-Encoding: chunked\r\n\r\n5\r\nabcde\r\nzz\r\n")
        crowd.send(request("guest", "guest"))
        crowd.send(b"GET /metrics HTTP/1.1\r\nHost: h\r\n\r\n")
    for each in crowd.sockets:
        each.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
    time.sleep(0.3)
    crowd.hang_up()
    with httpx.Client(auth=("guest", "guest"), timeout=PATIENCE_S) as client:
        assert client.get(f"{daemon.admin}/api/vhosts").json()[0]["name"] == "/"
    daemon.stop()  # fails if there is a traceback in the log
