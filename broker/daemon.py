"""The daemon: creates all parts of the broker, starts them, and stops them in order.

*Owns* the event loop, signals, the executor threads and the order of start and stop. Recovery runs before any
listener opens. The last batch is synced after the last connection has closed.
"""

from __future__ import annotations

import asyncio
import gc
import os
import secrets
import signal
import socket
import sys
import time
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import Context
from functools import partial
from pathlib import Path
from threading import Thread
from types import MappingProxyType
from typing import Final, Protocol

import structlog
import uvloop

from broker import __version__, logs
from broker.adapters.access import is_loopback
from broker.adapters.amqp091.rows import rows_of
from broker.adapters.amqp10.names import LinkNames
from broker.adapters.formats.amqp091 import write_receipt
from broker.adapters.formats.either import view_of, write_letter
from broker.adapters.peers.server import IDENTITY, Server
from broker.auth.access_control import AccessControl
from broker.auth.passwords import Password, make_password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.durations import Latency
from broker.core.errors import StoreFailed
from broker.core.schedule import Schedule
from broker.core.vhosts.vhost import AutoCreateError
from broker.dispatch.definition import KIND as DISPATCHER
from broker.dispatch.dispatcher import Services
from broker.dispatch.dispatchers import Dispatchers
from broker.flavour import FLAVOUR
from broker.forwarding.ends import EndHost
from broker.forwarding.federation import Federation
from broker.forwarding.readers import Readers
from broker.forwarding.remote_queues import RemoteQueues
from broker.forwarding.shovels import Shovels
from broker.forwarding.staged import StagingHost
from broker.journal.journal import create_journal
from broker.net.alarm_clock import AlarmClock
from broker.net.calls import Calls, StoredSecrets, unsupported
from broker.net.descriptors import connection_descriptors, raise_limit
from broker.net.http_connections import HttpConnections
from broker.net.listener import Listener, ListenError, describe_error
from broker.net.outbound import Outbound
from broker.net.password_threads import PasswordThreads
from broker.net.pump import Pump
from broker.net.resources import Resources, return_large_blocks
from broker.net.strangers import ADMIN, Strangers
from broker.net.tls import TlsError, admin_tls_of, reload_all, tls_of
from broker.net.tls_listener import TlsListener
from broker.store.disk import RealDisk
from broker.store.errors import StoreError
from broker.store.file_commit import FileStorage
from broker.store.log import Log
from broker.store.recovery.sink import RecoveryReport
from broker.store.repair.streams import StoredFile, read_all, stored_files
from broker.store.restore import Recovered, close
from broker.store.sync import HelperSyncer
from config.loader import LoadedSettings
from config.running import RunningSettings
from config.settings import Settings
from config.targets import AllowList
from config.values import Endpoint

GRACE_SECONDS: Final = 5.0
OUTBOUND_SECONDS: Final = 1.0  # for other brokers to answer the close of the broker's own connections
LAG_INTERVAL_SECONDS: Final = 0.1
STORE_TICK_SECONDS: Final = 1.0
PAUSE_SECONDS: Final = 0.05  # streams are read for so long, then other work has the disk for as long
GC_THRESHOLDS: Final = (50_000, 20, 1000)  # collections of long-lived objects are rare: they delay the loop
DEFAULT_VHOST: Final = "/"

_log = structlog.get_logger("amqpd")


def run(loaded: LoadedSettings) -> int:
    """Run the daemon until SIGTERM, SIGINT or a shutdown over HTTP; return the exit status."""
    settings = loaded.settings
    logs.configure(settings.log_format, settings.log_level)
    return_large_blocks()
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        try:
            return runner.run(Daemon(settings, runner.get_loop(), loaded.sources).main())
        except (StoreError, ListenError, TlsError, AutoCreateError, OSError) as error:
            reason = _reason(error, settings.data_dir)
            print(f"amqpd: {reason}", file=sys.stderr)  # noqa: T201  the one line that has the reason
            return 1


def _reason(error: Exception, data_dir: Path) -> str:
    """Return the reason why the daemon ends.

    For an unusable data folder, name the user and the setting too.
    """
    if not isinstance(error, OSError) or not isinstance(error.filename, str):
        return str(error)
    named = error.filename
    folder, place = (Path(os.path.abspath(path)) for path in (data_dir, named))
    if not place.is_relative_to(folder) and not folder.is_relative_to(place):
        return str(error)
    return (
        f"cannot use the data folder {folder}: {error.strerror} ({named}); let user {os.geteuid()} "
        "write there, or set --data-dir FOLDER (AMQPD_DATA_DIR)"
    )


class AdminHttp(Protocol):
    """The server of admin HTTP: an `AdminServer`, whose module is imported only where admin HTTP is on."""

    async def listen(self, host: str, port: int) -> tuple[str, int]:
        """Listen on every address of `host` and serve. Returns the first address. Raises AdminError."""

    def connection(self) -> tuple[object, object]:
        """Make a connection, and its protocol, which the event loop calls."""

    async def stop(self) -> None:
        """Stop listening, and close all connections."""


class Daemon:
    """A broker process: its parts, and the order in which they start and stop."""

    def __init__(
        self,
        settings: Settings,
        loop: asyncio.AbstractEventLoop,
        sources: Mapping[str, str] = MappingProxyType({}),
    ) -> None:
        self.settings = settings
        self.running_settings = self._new_running_settings(sources)
        self.loop = loop
        self._context = Context()  # for work of no request, although a request may have scheduled it
        self.stopping = asyncio.Event()
        self.writers = ThreadPoolExecutor(max_workers=2, thread_name_prefix="amqpd-log")
        self.password_threads = PasswordThreads(loop)
        self.lag = Latency()
        self.syncer = HelperSyncer(RealDisk(), self._off_loop)
        self.storage = FileStorage(
            str(settings.data_dir),
            RealDisk(),
            self.syncer,
            time.monotonic,
            segment_bytes=settings.segment_bytes,
        )
        self.log = Log(self.storage, lambda: self.broker.describe(), settings.memory_budget)
        self.log.wants_commit = self._wants_commit
        self.alarm_clock = AlarmClock(loop)
        self._lag_timer: asyncio.TimerHandle | None = None
        self._tick_timer: asyncio.TimerHandle | None = None
        broker = self.broker = self._new_broker(self.alarm_clock.schedule)
        self.journal = create_journal(
            settings, broker, view_of, loop.call_soon, loop.call_later, self._off_loop
        )
        self.users = Users(self.log)
        broker.appliers["user"] = self.users.apply
        broker.definers.append(self.users.describe)
        self.allowed = AllowList(settings.dispatch_allow)
        self.calls = Calls(loop)
        self.dispatchers = Dispatchers(broker, self.allowed, unsupported)
        broker.appliers[DISPATCHER] = self.dispatchers.apply
        broker.definers.append(self.dispatchers.describe)
        self.access = AccessControl(
            self.users,
            loop.call_later,
            self.password_threads.check,
            settings.sasl_mechanisms,
            settings.anonymous_user or "",
            settings.scram_iterations,
        )
        self.server = self._new_server()
        self.users.on_rights_changed = self.server.connections.on_rights_changed
        self.users.on_deleted = self.server.on_user_deleted
        broker.leaving += [
            self.server.on_vhost_deleted,
            self.users.forget_vhost,
            self.dispatchers.forget_vhost,
        ]
        broker.left.append(self.server.connections.on_vhost_released)
        self.pump = Pump(lambda run: loop.call_soon(run, context=self._context), time.monotonic)
        self.strangers = Strangers(settings.strangers_max, connection_descriptors(raise_limit()))
        self.tls, self.admin_tls = tls_of(settings), admin_tls_of(settings)
        self.listener = Listener(self.server, self.pump, loop, self.strangers, self.tls)
        self.outbound = Outbound(self.server, self.pump, loop)
        self.staging = StagingHost(broker, self.pump, self.server.conversions)
        self.server.make_reader = Readers(self.staging)
        broker.node = f"amqpd@{socket.gethostname()}"
        self.shovels = Shovels(broker, self.outbound, __version__, self.staging)
        self.federation = Federation(broker, self.outbound, __version__, self.staging)
        ends = EndHost(
            self.outbound, broker.schedule, __version__, self.server.conversions, lambda: broker.cluster_name
        )
        self.remote_queues = RemoteQueues(ends, self.staging)
        self.resources = Resources(
            self.server.shortage, str(settings.data_dir), settings.memory_max, settings.disk_free_min
        )
        self.server.shortage.measure = self._look_at_memory
        self.started, self.failure = False, ""
        self.admin: AdminHttp | None = None
        self.data_folder = os.path.abspath(settings.data_dir)
        self.admin_handshakes: TlsListener | None = None

    def _new_running_settings(self, sources: Mapping[str, str]) -> RunningSettings:
        return RunningSettings(
            self.settings,
            sources,
            {
                "log_level": self._set_log_level,
                "memory_max": self._set_memory_max,
                "disk_free_min": self._set_disk_free_min,
            },
        )

    def _new_broker(self, schedule: Schedule) -> Broker:
        broker = Broker(
            self.log,
            Counters(),
            self._unique,
            schedule,
            view_of,
            write_letter,
            _log.error,
            write_receipt,
            _log.warning,
        )
        broker.exclusive_drain = self.settings.exclusive_drain_ms
        return broker

    def _new_server(self) -> Server:
        settings = self.settings
        server = Server(
            self.broker,
            self.log,
            self.access,
            __version__,
            lambda prefix: prefix + self._unique(),
            LinkNames(),
            frame_max=settings.frame_max,
            channel_max=settings.channel_max,
            heartbeat=settings.heartbeat,
            handshake_seconds=settings.handshake_timeout_s,
            body_bytes_max=settings.message_size_max,
            consumer_timeout=settings.consumer_timeout_ms,
            transaction_bytes_max=settings.transaction_size_max,
            transaction_timeout=settings.transaction_timeout_ms,
            value_as_text=settings.amqp_value_as_text,
            auto_create=settings.auto_create,
        )
        server.set_product(settings.compat_product, settings.compat_version)
        return server

    # -- start and stop

    async def main(self) -> int:
        """Start, wait for a signal, stop."""
        for number in (signal.SIGTERM, signal.SIGINT):
            self.loop.add_signal_handler(number, self.stopping.set)
        self.loop.add_signal_handler(signal.SIGHUP, self._reload)
        gc.set_threshold(*GC_THRESHOLDS)
        self._recover()
        try:
            await self._first_start()
            self._start_dispatchers()
            await self.listener.open_all(self.settings)
            admin = await self._start_admin()
            gc.freeze()  # the objects of the start live as long as the process; never check them again
            self._tell_ready(admin)
            self.started = True
            self.shovels.start()
            self.federation.start()
            self.remote_queues.start()
            self._measure_lag(time.monotonic())
            self._tick_store()
            self._check_streams()
            await self.stopping.wait()
            _log.info("stopping")
        finally:
            status = await self._stop()
        return status

    async def _stop(self) -> int:
        """Disconnect everybody, then close the log; also after a start that has failed. Return the status."""
        self.started = False
        try:
            self.shovels.stop()
            self.federation.stop()
            self.remote_queues.stop()
            self.dispatchers.retire_all()
            await self.outbound.close(OUTBOUND_SECONDS)
            await asyncio.gather(self.listener.close(GRACE_SECONDS), self._end_calls())
            if self.admin_handshakes is not None:
                await self.admin_handshakes.close()
            if self.admin is not None:
                await self.admin.stop()
        finally:
            self._stop_timers()
            status = self._close_log()
            self.journal.stop(status == 0)
            _log.info("stopped", status=status)
            self.writers.shutdown(wait=False)
            self.password_threads.stop()
        return status

    def _start_dispatchers(self) -> None:
        """Let the dispatchers serve their queues."""
        seldom = logs.SeldomEach(time.monotonic)

        def warn(event: str, dispatcher: str, vhost: str, **values: object) -> None:
            seldom.warning(_log, event, (vhost, dispatcher), dispatcher=dispatcher, vhost=vhost, **values)

        services = Services(
            self.broker,
            self.allowed,
            self.pump,
            self.server.conversions,
            self.calls,
            StoredSecrets().read,
            (f"{self.log.identity:016x}", self._unique()),
            warn,
        )
        self.dispatchers.start(services)

    async def _end_calls(self) -> None:
        """Wait GRACE_SECONDS at most for the calls of dispatchers, and requeue the messages of the others."""
        await self.calls.wait(GRACE_SECONDS)
        self.dispatchers.abort_all()
        await self.calls.close()

    def _stop_timers(self) -> None:
        """Cancel the timers, which must not find a closed log: the loop still runs for a while."""
        self.alarm_clock.stop()
        for timer in (self._lag_timer, self._tick_timer):
            if timer is not None:
                timer.cancel()

    def _recover(self) -> None:
        self.settings.data_dir.mkdir(mode=0o700, parents=True, exist_ok=True)
        began = time.monotonic()
        self.broker.sinks.open_rows = rows_of
        report = self.log.recover(Recovered(self.broker))
        self.staging.origin = f"{self.log.identity:x}"
        self.server.properties[IDENTITY] = self.staging.origin
        self.access.set_decoy_secret(self.log.identity.to_bytes(8))
        self.journal.start(__version__)
        self.log.defined = self.journal.recorder.defined
        self.broker.resume()
        self.syncer.unwatch = self._unwatch
        if self.settings.sync_helper_lost == "stop":
            self.syncer.lost = self._helper_lost
        self.loop.add_reader(self.syncer.fileno(), self.syncer.on_readable)
        self._tell_recovered(report, time.monotonic() - began)

    async def _first_start(self) -> None:
        """Create the virtual host and the first user that a new data folder needs."""
        self.broker.declare_vhost(DEFAULT_VHOST)
        settings = self.settings
        if settings.load_definitions is not None:
            from broker.admin.definitions.importer import load_definitions

            load_definitions(
                settings.load_definitions,
                settings.definitions_skip_unchanged,
                settings.load_definitions_skip,
                self.broker,
                self.users,
                self.dispatchers,
            )
        password = settings.default_pass.get_secret_value()
        if len(self.users) == 0:
            kept = await self._make_password(password)
            self.users.add_first(settings.default_user, kept, DEFAULT_VHOST)
            _log.info("first user created", user=settings.default_user)

    def _close_log(self) -> int:
        """Close the log; log a failure."""
        try:
            close(self.broker, self.log)
        except StoreFailed as error:
            _log.error("the log could not be closed cleanly", reason=error.text)
            return 1
        return 0

    # -- admin

    async def _start_admin(self) -> str:
        """Serve admin HTTP at the configured addresses; return the addresses in the form of the ready line.

        The modules are imported here, as the import is slow.
        """
        settings = self.settings
        plain = [] if settings.admin is None else [settings.admin]
        if not (plain or settings.admin_tls_listen):
            return "admin=off"
        from broker.admin.http import Bounds
        from broker.admin.server import admin_server
        from broker.admin.state import COMPATIBLE_WITH, AdminState, Measured

        measured = Measured(
            self.broker, self.server.connections, self.log, self.lag, self.resources, self.dispatchers
        )
        state = AdminState(
            __version__,
            FLAVOUR,
            measured,
            self._not_ready,
            shovels=self.shovels.all,
            links=self.federation.count,
            federation_links=self.federation.all,
            remote_links=self.remote_queues.links,
            mechanisms=settings.sasl_mechanisms,
            data_folder=self.data_folder,
            certificate_files=self._certificate_files(),
            rabbitmq_version=settings.compat_version or COMPATIBLE_WITH,
            settings=self.running_settings,
            shut_down=self._shut_down,
            set_accepting=self._set_accepting,
        )
        listeners: list[tuple[str, str, int]] = [*self.listener.bound]
        callers = HttpConnections(
            self.strangers, settings.admin_connections, settings.admin_connections_per_address, time.monotonic
        )
        bounds = Bounds(settings.admin_header_timeout_ms / 1000, settings.admin_body_timeout_ms / 1000)
        parts = self.server, self.users, self.access, self._make_password
        served = (state, *parts, self.journal.served(), self.shovels, self.federation, self.dispatchers)
        options = settings.admin_origins, settings.metrics_per_object, settings.admin_page
        self.admin = admin_server(*served, listeners, callers, bounds, *options)
        at = [await self._listen_plain(self.admin, place) for place in plain]
        secure = [await self._listen_secure(self.admin, place) for place in settings.admin_tls_listen]
        listeners += [("http", *where) for where in at]
        listeners += [("https", *where) for where in secure]
        shown = f"admin={logs.endpoints(at)}"
        return f"{shown} admin-tls={logs.endpoints(secure)}" if secure else shown

    def _certificate_files(self) -> dict[str, Path]:
        """Return the file with the certificate for each protocol over TLS, under RabbitMQ's names."""
        files: dict[str, Path] = {}
        if self.tls is not None:
            files |= dict.fromkeys(("amqp/ssl", "https/web-amqp"), self.tls.certificate.path)
        if self.admin_tls is not None:
            files["https"] = self.admin_tls.certificate.path
        return files

    async def _listen_plain(self, admin: AdminHttp, place: Endpoint) -> tuple[str, int]:
        """Serve admin HTTP at `place`; return the address. Raises AdminError."""
        host, port = await admin.listen(place.host, place.port)
        if not is_loopback(host):
            _log.warning(
                "admin HTTP is not encrypted: passwords and messages cross the network in clear; "
                "set admin_tls_listen, or let admin listen on loopback only",
                admin=str(place),
            )
        return place.host, port

    async def _listen_secure(self, admin: AdminHttp, place: Endpoint) -> tuple[str, int]:
        """Serve admin HTTP over TLS at `place`; return the address. Raises ListenError."""
        if self.admin_handshakes is None:
            assert self.admin_tls is not None  # the settings require a certificate
            self.admin_handshakes = TlsListener(
                self.admin_tls,
                self.loop,
                self.strangers,
                self.settings.handshake_timeout_s,
                ADMIN,
                self.settings.admin_connections_per_address,
            )

        try:
            _, port = await self.admin_handshakes.open(place.host, place.port, admin.connection)
        except OSError as error:
            raise ListenError(
                f"cannot listen on {place} for admin HTTP over TLS: {describe_error(error)}; "
                "set --admin-tls-listen HOST:PORT or --admin-tls-listen off"
            ) from error
        return place.host, port

    def _reload(self) -> None:
        """Read the certificates again, for new connections."""
        reload_all(tls for tls in (self.tls, self.admin_tls) if tls is not None)

    def _set_log_level(self, level: str) -> None:
        _log.warning("log level changed until the next start", log_level=level)
        logs.configure(self.settings.log_format, level)

    def _set_memory_max(self, size: int) -> None:
        self.resources.memory_max = size
        self._change_limit(memory_max=size)

    def _set_disk_free_min(self, size: int) -> None:
        self.resources.disk_free_min = size
        self._change_limit(disk_free_min=size)

    def _change_limit(self, **limit: int) -> None:
        """Log a changed limit, and check it at once."""
        _log.warning("limit changed until the next start", **limit)
        self._look_at_memory()

    def _shut_down(self, user: str, reason: str) -> None:
        """Stop as after SIGTERM. The request for it still gets its answer."""
        _log.warning("shutdown requested over HTTP", user=user, reason=reason)
        self.stopping.set()

    async def _make_password(self, password: str) -> Password:
        """Hash a password in a thread, as hashing is slow."""
        hashing = partial(make_password, password, self.settings.scram_iterations)
        return await self.password_threads.run(hashing)

    def _not_ready(self) -> str:
        if self.log.failure:
            return f"the log has failed: {self.log.failure}"
        if self.listener.is_suspended:
            return "the listeners are suspended"
        return "" if self.started else "starting or stopping"

    async def _set_accepting(self, wanted: bool) -> str:
        """Accept connections of clients, or no more; return why that failed, or ""."""
        try:
            await (self.listener.resume() if wanted else self.listener.suspend())
        except ListenError as error:
            return str(error)
        return ""

    # -- calls from the parts

    def _unique(self) -> str:
        return secrets.token_urlsafe(16)

    def _wants_commit(self) -> None:
        """Commit at the end of this turn of the loop, as a batch has its first append."""
        self.loop.call_soon(self.log.commit, context=self._context)

    def _off_loop(self, work: Callable[[], None], done: Callable[[BaseException | None], None]) -> None:
        """Run `work` in a thread, then call `done` on the loop with its exception or None."""
        future = self.loop.run_in_executor(self.writers, work)
        future.add_done_callback(lambda finished: done(finished.exception()))

    def _unwatch(self, fd: int) -> None:
        self.loop.remove_reader(fd)

    def _check_streams(self) -> None:
        """Read all stored streams in a thread, half of the time, and log damaged rows."""
        files = stored_files(self.storage)
        if files:
            Thread(target=self._read_streams, args=(files,), name="amqpd-streams", daemon=True).start()

    def _read_streams(self, files: list[StoredFile]) -> None:
        began = time.monotonic()
        for chunk in read_all(files, RealDisk()):
            if self.stopping.is_set():
                return
            if chunk is not None:
                self.loop.call_soon_threadsafe(chunk.mark_unreadable, self.storage)
            now = time.monotonic()
            if now - began > PAUSE_SECONDS:
                time.sleep(now - began)
                began = time.monotonic()

    def _helper_lost(self) -> None:
        """End with status 1, as the log cannot be closed: a supervisor starts the broker again."""
        if not self.stopping.is_set():
            _log.error("stopping: the process that syncs the log has died", reason=self.log.failure)
            self.stopping.set()

    def _measure_lag(self, due: float) -> None:
        """Record the delay of a timer, which is the time that the loop was busy."""
        now = time.monotonic()
        self.lag.observe(max(0.0, now - due))
        due = now + LAG_INTERVAL_SECONDS
        self._lag_timer = self.loop.call_later(LAG_INTERVAL_SECONDS, self._measure_lag, due)

    def _look_at_memory(self) -> None:
        """Check memory between two ticks, as many messages have arrived."""
        self.resources.check(self.log.full or self.journal.holds_publishers)

    def _tick_store(self) -> None:
        """Check free space, memory and failures, once a second; log when the log fails or recovers."""
        self._tick_timer = self.loop.call_later(STORE_TICK_SECONDS, self._tick_store)  # also if this fails
        self.log.tick()
        self.journal.tick()
        self.resources.tick()
        self.resources.check(self.log.full or self.journal.holds_publishers)
        failure = self.log.failure
        if failure and not self.failure:
            _log.error("publishes are refused: the log has failed", reason=failure)
        elif self.failure and not failure:
            _log.warning("publishes are accepted again", was=self.failure)
        self.failure = failure

    # -- log lines

    def _tell_recovered(self, report: RecoveryReport, seconds: float) -> None:
        if report.torn:
            _log.warning(
                "torn tail cut", file=report.torn, offset=report.torn_offset, bytes=report.torn_bytes
            )
        _log.info(
            "log read",
            segments=report.segments,
            messages=report.messages,
            **({} if report.is_new else {"clean": report.clean}),
            seconds=round(seconds, 3),
        )
        for objection in [*self.broker.objections(), *self.users.objections()]:
            _log.warning("an expression matches nothing", reason=objection)

    def _tell_ready(self, admin: str) -> None:
        data = self.data_folder
        addresses = f"{self.listener.describe_addresses()} {admin}"
        print(  # noqa: T201
            f"amqpd {__version__} ready: {addresses} data={data} ({FLAVOUR})",
            flush=True,
        )
