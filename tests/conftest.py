"""Fixtures of the black-box tests: a shared broker process, a broker of a single test, and connections."""

import itertools
import re
from collections.abc import Callable, Iterator
from pathlib import Path

import hypothesis
import pytest
from pamqp.commands import Queue
from pamqp.common import FieldTable

from tests.support.admin.api import Api
from tests.support.amqp091.peer import Connector, Dialler, Peer, PeerChannel
from tests.support.daemon.certificates import Certificates
from tests.support.daemon.daemon import Address, Daemon, DaemonStarter
from tests.support.effort import cases
from tests.support.leftovers import Leftovers, can_keep

LEFTOVERS = pytest.StashKey[Leftovers]()
NIGHTLY_TIMEOUT_S = 5400
AMQPD_ONLY = "amqpd_only(reason): what other brokers do differently; not run with --against"


def pytest_addoption(parser: pytest.Parser) -> None:
    """Options of the black-box tests."""
    parser.addoption(
        "--against",
        metavar="HOST:PORT",
        help="run the black-box tests that ask for common behaviour on another broker, already running",
    )


def pytest_configure(config: pytest.Config) -> None:
    """Register the markers of the black-box tests, and have no example fail because the machine is busy."""
    config.addinivalue_line("markers", AMQPD_ONLY)
    hypothesis.settings.register_profile("amqpd", deadline=None, max_examples=cases(100))
    hypothesis.settings.load_profile("amqpd")
    if can_keep():
        config.stash[LEFTOVERS] = Leftovers()


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_sessionfinish(session: pytest.Session) -> Iterator[None]:
    """Fail a run whose tests have left processes behind, after the workers and all fixtures have ended."""
    yield
    leftovers = session.config.stash.get(LEFTOVERS, None)
    if leftovers is None:
        return
    failed = session.exitstatus == pytest.ExitCode.TESTS_FAILED
    left = leftovers.end(failed)
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter is not None and failed and leftovers.folder.exists():
        reporter.write_line(f"files of the failed tests: {leftovers.folder}")
    if left:
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
        if reporter is not None:
            reporter.write_line(f"processes that tests left behind, now killed: {left}", red=True)


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Give nightly tests their time, and skip tests of our own behaviour against another broker."""
    for item in items:
        if item.get_closest_marker("nightly") and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(NIGHTLY_TIMEOUT_S))
    if config.getoption("--against"):
        for item in items:
            own = {"daemon", "start_daemon"} & set(getattr(item, "fixturenames", ()))
            if own or item.get_closest_marker("amqpd_only"):
                item.add_marker(pytest.mark.skip(reason="amqpd's own behaviour"))


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Report the tests that the README's test command leaves out, and how to run them."""
    if config.args_source is pytest.Config.ArgsSource.TESTPATHS:
        terminalreporter.write_line(
            "left out: most tests with clients and daemons (run `.ci/run`, or pytest tests/conformance "
            "tests/interop), Spark (pytest tests/pipeline), and the nightly tier (`.ci/run nightly`)"
        )


class SharedDaemon:
    """A single broker process for many tests; a test that stops it does not break the next ones."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._started = itertools.count()
        self._daemon: Daemon | None = None

    def get(self) -> Daemon:
        """The process, started if need be."""
        if self._daemon is None or not self._daemon.alive:
            self._daemon = Daemon(self._folder / f"run-{next(self._started)}").wait_until_ready()
        return self._daemon

    def stop(self) -> None:
        """Stop it as a user would."""
        if self._daemon is not None and self._daemon.alive:
            self._daemon.stop()


@pytest.fixture(scope="session")
def shared_daemon(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedDaemon]:
    """The broker process of the whole run."""
    shared = SharedDaemon(tmp_path_factory.mktemp("shared-daemon"))
    yield shared
    shared.stop()


@pytest.fixture
def daemon(shared_daemon: SharedDaemon) -> Iterator[Daemon]:
    """The shared broker process; it must outlive every test, with no exception in its log."""
    daemon = shared_daemon.get()
    known = len(daemon.log.lines)
    yield daemon
    news = "\n".join(daemon.log.lines[known:])
    assert daemon.alive, f"the broker ended with {daemon.process.returncode}:\n{news}"
    assert "Traceback" not in news, news


@pytest.fixture
def own(request: pytest.FixtureRequest) -> Daemon | None:
    """The daemon whose log can be read; None when another broker is under test."""
    if request.config.getoption("--against"):
        return None
    daemon: Daemon = request.getfixturevalue("daemon")
    return daemon


@pytest.fixture
def address(request: pytest.FixtureRequest) -> Address:
    """The address of the broker under test."""
    if other := request.config.getoption("--against"):
        host, _, port = str(other).rpartition(":")
        return Address(host, int(port))
    daemon: Daemon = request.getfixturevalue("daemon")
    return daemon.address


@pytest.fixture
def start_daemon(tmp_path: Path) -> Iterator[DaemonStarter]:
    """Start broker processes for this test; processes that still run at its end must stop cleanly."""
    started: list[Daemon] = []

    def start(
        *options: str,
        environment: dict[str, str] | None = None,
        data_dir: Path | None = None,
        wrapper: tuple[str, ...] = (),
        port: int = 0,
    ) -> Daemon:
        folder = tmp_path / f"daemon-{len(started)}"
        daemon = Daemon(
            folder, options, environment, wrapper, data_dir=data_dir or tmp_path / "data", port=port
        )
        started.append(daemon)
        return daemon.wait_until_ready()

    yield start
    for daemon in started:
        if daemon.alive:
            daemon.stop()


@pytest.fixture(scope="session")
def certificates(tmp_path_factory: pytest.TempPathFactory) -> Certificates:
    """An authority and its certificates."""
    return Certificates(tmp_path_factory.mktemp("certificates"))


@pytest.fixture
def dial(request: pytest.FixtureRequest) -> Iterator[Dialler]:
    """Open sockets to the broker under test, or to another broker, without a handshake."""
    peers: list[Peer] = []

    def dial(to: Address | None = None) -> Peer:
        peer = Peer(to or request.getfixturevalue("address"))
        peers.append(peer)
        return peer

    yield dial
    for peer in peers:
        peer.drop()


@pytest.fixture
def connect(dial: Dialler) -> Connector:
    """Open connections to the broker under test, or to another broker."""

    def connect(
        to: Address | None = None,
        *,
        frame_max: int = 131072,
        heartbeat: int = 0,
        channel_max: int = 2047,
        capabilities: FieldTable | None = None,
        vhost: str = "/",
    ) -> Peer:
        return dial(to).open(frame_max, heartbeat, channel_max, capabilities, vhost)

    return connect


@pytest.fixture
def channel(connect: Connector) -> PeerChannel:
    """Channel 1 of a connection of its own."""
    return connect().channel()


@pytest.fixture
def durable_queue(connect: Connector, name: str) -> Iterator[str]:
    """A durable queue that any connection may use, so that persistent messages in it go to the log."""
    owner = connect().channel()
    owner.declare(name, durable=True)
    yield name
    owner.call(Queue.Delete(queue=name), Queue.DeleteOk)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """A name that no other test uses, for queues and exchanges."""
    return re.sub(r"[^\w.-]+", ".", request.node.nodeid.rpartition("/")[2]).strip(".")[-100:]


@pytest.fixture
def api(daemon: Daemon) -> Iterator[Api]:
    """The HTTP API of the shared broker, as its administrator."""
    api = Api(daemon.load_api().admin)
    yield api
    api.close()


@pytest.fixture
def vhost(api: Api, name: str) -> Iterator[str]:
    """A virtual host of the test's own."""
    api.put("vhosts", name)
    yield name
    api.ask("DELETE", "vhosts", name)


@pytest.fixture
def user(api: Api, vhost: str) -> Iterator[Callable[..., Api]]:
    """Add users, each with tags, and let them into the test's virtual host; gives their clients."""
    clients: list[Api] = []
    names: list[str] = []

    def add(
        tags: str, permitted: bool = True, configure: str = ".*", write: str = ".*", read: str = ".*"
    ) -> Api:
        name = f"{vhost}.{len(names)}"
        names.append(name)
        api.put("users", name, password="secret", tags=tags)
        if permitted:
            api.put("permissions", vhost, name, configure=configure, write=write, read=read)
        clients.append(Api(api.base, name, "secret"))
        return clients[-1]

    yield add
    for client in clients:
        client.close()
    for name in names:
        api.ask("DELETE", "users", name)
