"""The broker without a daemon: commands on the data folder of a stopped broker."""

from __future__ import annotations

import secrets
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any, Final

from broker import __version__
from broker.adapters.formats.either import view_of
from broker.admin.definitions.exporter import export_pieces, export_vhost_pieces
from broker.admin.definitions.importer import DefinitionsError, Skipped, find_clear_passwords, import_steps
from broker.admin.json_documents import JsonError, read_json
from broker.auth.passwords import make_password
from broker.auth.users import Users
from broker.core.broker import Broker
from broker.core.counters import Counters
from broker.core.policies.policy import OPERATOR_POLICY, POLICY
from broker.core.ports import MessageStore
from broker.core.schedule import Schedule
from broker.core.vhosts.changes import VHOST, Change
from broker.dispatch.definition import KIND as DISPATCHER
from broker.dispatch.dispatchers import Dispatchers
from broker.store.disk import RealDisk
from broker.store.file_commit import FileStorage
from broker.store.log import Log
from broker.store.recovery.files import FileReplay
from broker.store.restore import Recovered, close
from broker.store.segment import SUFFIX
from broker.store.sync import DiskSyncer

WITH_EXPRESSIONS: Final = (POLICY, OPERATOR_POLICY, VHOST, "user")
"""The kinds of changes that add or remove regular expressions."""


class OfflineError(Exception):
    """The command cannot be done; the text has the reason."""


class OfflineBroker:
    """A broker on a log, without clients."""

    def __init__(self, folder: Path) -> None:
        disk = RealDisk()
        self.storage = FileStorage(str(folder), disk, DiskSyncer(disk), time.monotonic)
        self.log = Log(self.storage, self._describe)
        schedule = Schedule(time.monotonic_ns, time.time_ns, _ignore_timer)
        self.broker = Broker(self.log, Counters(), lambda: secrets.token_urlsafe(16), schedule, view_of)
        self.users = Users(self.log)
        self.broker.appliers["user"] = self.users.apply
        self.broker.definers.append(self.users.describe)
        self.dispatchers = Dispatchers(self.broker, None)
        self.broker.appliers[DISPATCHER] = self.dispatchers.apply
        self.broker.definers.append(self.dispatchers.describe)
        self.broker.leaving += [self.users.forget_vhost, self.dispatchers.forget_vhost]

    def _describe(self) -> Iterator[list[Change]]:
        return self.broker.describe()


def export_definitions(folder: Path, vhost: str | None) -> Iterator[str]:
    """Return the definitions of a log as pieces of one JSON text; the log is only read.

    Raises OfflineError, StoreError (while a daemon uses the log, or if the log is damaged), OSError.
    """
    if not any(folder.glob(f"*{SUFFIX}")):
        raise OfflineError(f"no log in {folder}")  # before the lock creates files in the folder
    closed = OfflineBroker(folder)
    files = closed.storage.files
    files.lock()
    try:
        reading = FileReplay(files)
        reading.run()
        for change in reading.replay.definitions():
            closed.broker.apply(change)
    finally:
        closed.log.release()
    if vhost is None:
        return export_pieces(closed.broker, closed.users, closed.dispatchers, __version__)
    virtual_host = closed.broker.vhosts.get(vhost)
    if virtual_host is None:
        raise OfflineError(f"there is no vhost '{vhost}'")
    return export_vhost_pieces(virtual_host, closed.dispatchers, __version__)


def unusable_expressions(changes: Iterable[Change]) -> list[str]:
    """Return the regular expressions of policies and permissions that match nothing, each with the reason.

    `changes`: the definitions of a log, in order, which may be damaged.
    """
    broker = Broker(MessageStore(), Counters(), str, Schedule(int, int, _ignore_timer), view_of)
    users = Users(MessageStore())
    broker.appliers["user"] = users.apply
    for change in changes:
        if str(change.get("kind", "")).split(".")[0] in WITH_EXPRESSIONS:
            with suppress(ValueError):  # an unreadable change: the report has the damage in another line
                broker.apply(change)
    return [*broker.objections(), *users.objections()]


def check_definitions(content: bytes, name: str) -> list[str]:
    """Try definitions on an empty broker; return what the broker does not have, a line for each.

    `content`: the JSON document. `name`: the file of the document, for errors.

    Raises OfflineError with a line for each wrong object.
    """
    store = MessageStore()
    schedule = Schedule(time.monotonic_ns, time.time_ns, _ignore_timer)
    broker = Broker(store, Counters(), lambda: secrets.token_urlsafe(16), schedule, view_of)
    broker.declare_vhost("/")
    skipped = Skipped()
    _import(broker, Users(store), Dispatchers(broker, None), _read(content, name), None, skipped)
    return skipped.lines


def import_definitions(
    folder: Path, content: bytes, vhost: str | None, name: str, skip_unsupported: bool = False
) -> list[str]:
    """Import definitions into the log of a folder, all or none. A missing folder is created.

    `content`: the JSON document. `name`: the file of the document, for errors. `skip_unsupported`: pass over
    what the broker does not have, and return a line for each.

    Raises OfflineError with a line for each wrong object, StoreError, StoreFailed, OSError.
    """
    document = _read(content, name)
    skipped = Skipped() if skip_unsupported else None
    with open_log(folder) as closed:
        if vhost is not None and vhost not in closed.broker.vhosts:
            raise OfflineError(f"there is no vhost '{vhost}'")
        _import(closed.broker, closed.users, closed.dispatchers, document, vhost, skipped)
    return [] if skipped is None else skipped.lines


def _read(content: bytes, name: str) -> Any:
    """Return a JSON document. Raises OfflineError."""
    try:
        return read_json(content)
    except JsonError as error:
        raise OfflineError(f"{name}: {error}") from error


def _import(
    broker: Broker,
    users: Users,
    dispatchers: Dispatchers,
    document: Any,
    vhost: str | None,
    skipped: Skipped | None,
) -> None:
    """Import definitions; `skipped` as for `import_steps`. Raises OfflineError."""
    passwords = {user: make_password(password) for user, password in find_clear_passwords(document).items()}
    try:
        for _ in import_steps(document, broker, users, dispatchers, passwords, vhost, skipped):
            pass
    except DefinitionsError as error:
        raise OfflineError("\n".join(error.problems)) from error


@contextmanager
def open_log(folder: Path) -> Iterator[OfflineBroker]:
    """Recover a log for changes, and close it cleanly also after an error."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    closed = OfflineBroker(folder)
    closed.log.recover(Recovered(closed.broker))
    try:
        yield closed
    finally:
        close(closed.broker, closed.log)


def _ignore_timer(due: int) -> None:
    """Do nothing: a stopped broker has no timers."""
