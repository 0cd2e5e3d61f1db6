"""Refused log-ins by address, and delays for guessers: a single gate serves HTTP and AMQP."""

import socket
import time
from collections.abc import Callable, Iterator

import pytest

from broker.adapters.access import is_loopback
from broker.auth.backoff import DELAY_MIN, FREE_FAILURES
from tests.support.admin.api import Api
from tests.support.amqp091.peer import Dialler
from tests.support.daemon.daemon import Address, DaemonStarter

pytestmark = pytest.mark.amqpd_only("looks at a daemon of its own")

Ask = Callable[..., Api]


@pytest.fixture
def ask() -> Iterator[Ask]:
    """Clients of an HTTP API, closed at the end."""
    clients: list[Api] = []

    def ask(base: str, user: str = "guest", password: str = "guest") -> Api:
        clients.append(Api(base, user, password))
        return clients[-1]

    yield ask
    for client in clients:
        client.close()


def outside() -> str:
    """An address of this machine under which its connections to itself do not come from loopback."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect(("198.51.100.1", 9))  # sends nothing: the system only chooses an address
        except OSError:
            pytest.skip("this machine has no address but loopback")
        return str(probe.getsockname()[0])


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        ("127.0.0.1", True),
        ("127.200.0.9", True),
        ("::1", True),
        ("::ffff:127.0.0.1", True),
        ("192.0.2.7", False),
        ("128.127.0.1", False),
        ("::ffff:192.0.2.7", False),
        ("2001:db8::1", False),
        ("::", False),
        ("", False),
    ],
)
def test_loopback_addresses(host: str, expected: bool) -> None:
    assert is_loopback(host) is expected


def test_guest_comes_from_loopback_only(start_daemon: DaemonStarter, dial: Dialler, ask: Ask) -> None:
    host = outside()
    daemon = start_daemon("--listen", "0.0.0.0:0", "--admin", "0.0.0.0:0")
    port = daemon.admin.rpartition(":")[2]
    here, there = f"http://127.0.0.1:{port}", f"http://{host}:{port}"
    administrator = ask(here)
    assert administrator.get("whoami")["name"] == "guest"
    refusal = {"error": "not_authorized", "reason": "Not_Authorized"}
    assert ask(there).refused(401, "GET", "whoami") == refusal
    peer = dial(Address(host, daemon.address.port))
    peer.start()
    peer.login()
    assert peer.expect_close(403).startswith("ACCESS_REFUSED - Login was refused")

    administrator.put("users", "boss", password="secret", tags="administrator")
    administrator.put("permissions", "/", "boss", configure=".*", write=".*", read=".*")
    assert ask(there, "boss", "secret").get("whoami")["name"] == "boss"
    peer = dial(Address(host, daemon.address.port))
    peer.start()
    peer.login("boss", "secret")
    peer.tune()
    assert ask(there).refused(401, "GET", "overview") == refusal, "also when others come from there"


def wait_after(failures: int) -> float:
    """Seconds that the next guess waits."""
    return DELAY_MIN * 2.0 ** (failures - FREE_FAILURES)


def test_guesses_over_http_wait_longer_and_longer_and_so_does_the_user_over_amqp(
    start_daemon: DaemonStarter, dial: Dialler, ask: Ask
) -> None:
    daemon = start_daemon()
    wrong = ask(daemon.admin, "guest", "wrong")
    began = [0.0]
    for _ in range(FREE_FAILURES + 3):
        began.append(time.monotonic())
        wrong.refused(401, "GET", "whoami")
    # a wait is counted from the failure before it, which was noted after that guess had begun
    waited = time.monotonic() - began[FREE_FAILURES]
    assert waited >= sum(wait_after(FREE_FAILURES + n) for n in range(3))

    peer = dial(daemon.address)
    peer.start()
    peer.login()
    peer.tune()
    assert time.monotonic() - began[-1] >= wait_after(FREE_FAILURES + 3), "the right password waits its turn"
    assert ask(daemon.admin).get("whoami")["name"] == "guest"
