"""The broker's side of the sync helper process."""

import os
import select
import socket
import subprocess
import sys
from array import array
from collections import deque
from collections.abc import Callable
from typing import Final

from mypy_extensions import mypyc_attr

from broker.store.disk import Disk
from broker.store.group_commit import GroupCommit
from broker.store.sync_helper import ATTACHED_MAX, FOLDER, MORE, NEW_FILE, PACKET_MAX
from broker.store.syncer import DiskSyncer, RunOffLoop

CHORES_MAX: Final = 16  # asked for at a time: requests and answers always fit into the sockets' buffers
EXIT_SECONDS: Final = 10.0  # what a sync that is under way may still take when the log is closed


def do_nothing() -> None:
    """The `lost` of a syncer whose owner goes on without a log."""


def ignore(_: int) -> None:
    """The `unwatch` of a syncer that is driven by hand."""


@mypyc_attr(allow_interpreted_subclasses=True)
class HelperSyncer(DiskSyncer):
    """Syncs in a process of its own; large writes go through `run_off_loop`.

    A thread would do, but a busy loop can keep it from the interpreter lock for a second; the helper's answer
    is a readable socket. Register `fileno` for reading with `on_readable` after `attach` (that is, after
    `Log.recover`), and set `unwatch` to what takes that back: it is called with the descriptor before it is
    closed. If the process dies, the log stops: its last sync is not known to have happened.
    """

    def __init__(self, disk: Disk, run_off_loop: RunOffLoop) -> None:
        super().__init__(disk, run_off_loop)
        self.socket: socket.socket | None = None
        self.chores: socket.socket | None = None
        self.process: subprocess.Popen[bytes] | None = None
        self.current = -1  # the file that the helper has
        self.unwatch: Callable[[int], None] = ignore
        self.lost: Callable[[], None] = do_nothing  # what to do when the helper has died
        self.syncing = False
        self.doing: int = 0  # chores that have been asked for and not answered
        self.waiting: deque[bytes] = deque()  # and those that have not been asked for yet

    def attach(self, directory: str, target: GroupCommit, lock: int) -> None:
        """Start the helper. Raises OSError."""
        super().attach(directory, target, lock)
        ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        chores, their_chores = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        script = os.path.join(os.path.dirname(os.path.abspath(__file__)), "sync_helper.py")
        descriptors = (theirs.fileno(), their_chores.fileno())
        try:
            self.process = subprocess.Popen(  # noqa: S603
                [sys.executable, "-I", "-S", script, directory, *map(str, descriptors)],
                stdin=subprocess.DEVNULL,
                pass_fds=(*descriptors, lock),  # so that the folder is locked until it has ended
                process_group=0,
            )
        finally:
            theirs.close()
            their_chores.close()
        ours.setblocking(False)
        self.socket = ours
        self.chores = chores
        self.pid = self.process.pid

    def fileno(self) -> int:
        """The descriptor that becomes readable when the helper answers."""
        assert self.socket is not None
        return self.socket.fileno()

    def start_sync(self, fd: int, directory: bool, others: list[int]) -> None:
        """Ask the helper; the file is passed to it when it is another one than before, others always are."""
        flags = FOLDER if directory else 0
        while len(others) > ATTACHED_MAX:
            self._send_sync(MORE, others[:ATTACHED_MAX])
            others = others[ATTACHED_MAX:]
        attached = list(others)
        if fd != self.current or directory:
            flags |= NEW_FILE
            attached.append(fd)
        self.current = fd
        self.syncing = True
        self._send_sync(flags, attached)

    def _send_sync(self, flags: int, files: list[int]) -> None:
        if self.socket is None:
            self._lost("it is gone")
            return
        ancillary = [(socket.SOL_SOCKET, socket.SCM_RIGHTS, array("i", files))] if files else []
        try:
            self.socket.sendmsg([b"S" + bytes([flags])], ancillary)
        except OSError as error:
            self._lost(str(error))

    def prepare(self, name: str, size: int) -> None:
        """Ask the helper's second thread."""
        self._ask(b"P" + size.to_bytes(8, "big") + name.encode())

    def grow(self, name: str, size: int) -> None:
        """Ask the helper's second thread."""
        self._ask(b"G" + size.to_bytes(8, "big") + name.encode())

    def recycle(self, name: str, new_name: str, size: int) -> None:
        """Ask the helper's second thread."""
        self._ask(b"C" + size.to_bytes(8, "big") + name.encode() + b"\0" + new_name.encode())

    def remove(self, name: str) -> None:
        """Ask the helper's second thread."""
        self._ask(b"R" + name.encode())

    def _ask(self, request: bytes) -> None:
        """Ask for a chore, or do so when one before it is done: neither side may ever wait for the other."""
        if self.chores is None:
            return
        if self.doing >= CHORES_MAX:
            self.waiting.append(request)
            return
        self.doing += 1
        try:
            self.chores.send(request)
        except OSError as error:
            self._lost(str(error))

    def on_readable(self) -> None:
        """Report what the helper has answered."""
        while self.socket is not None:
            try:
                packet = self.socket.recv(PACKET_MAX)
            except BlockingIOError:
                return
            except OSError as error:
                self._lost(str(error))
                return
            if not packet:
                self._lost("it has exited")
                return
            self._report(packet)

    def _report(self, packet: bytes) -> None:
        if packet[:1] != b"S":
            self.doing -= 1
            if self.waiting:
                self._ask(self.waiting.popleft())
        target = self.target
        if target is None:
            return
        number = int.from_bytes(packet[1:5], "big")
        reason = os.strerror(number) if number else ""
        if packet[:1] == b"S":
            self.syncing = False
            target.completed(f"sync failed: {reason}" if reason else "")
        elif packet[:1] == b"P":
            target.prepared(packet[5:].decode(), reason)
        else:
            target.removed(packet[5:].decode(), reason)

    def _lost(self, problem: str) -> None:
        """The helper is gone, or cannot be reached: as a failed sync."""
        self._close_sockets()
        if self.target is not None:
            self.syncing = False
            self.target.completed(f"the sync helper (pid {self.pid}) is lost: {problem}")
            self.lost()

    def finish(self) -> None:
        """Write here what the other thread may not have written yet, and wait for the helper's answer."""
        super().finish()
        while self.syncing and self.socket is not None:
            select.select([self.socket], [], [])
            self.on_readable()

    def close(self) -> None:
        """End the helper: it sees its sockets closed."""
        super().close()
        self._close_sockets()
        process = self.process
        self.process = None
        if process is not None:
            try:
                process.wait(EXIT_SECONDS)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()

    def _close_sockets(self) -> None:
        sock = self.socket
        chores = self.chores
        self.socket = None
        self.chores = None
        if sock is not None:
            self.unwatch(sock.fileno())
            sock.close()
        if chores is not None:
            chores.close()
