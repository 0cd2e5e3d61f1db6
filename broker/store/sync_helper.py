"""The sync helper process does a log's blocking disk work, so that the broker's loop never blocks.

The helper is started with the plain interpreter and imports nothing of the broker. So the helper is small and
starts fast:

    python -I -S sync_helper.py FOLDER SOCKET CHORES

SOCKET and CHORES are descriptors of SOCK_SEQPACKET sockets. Each request or answer is a packet. Requests:

    S flags [descriptors]   fdatasync of all attached files, and then of the current one. Flag 1: the last
                            attached file becomes the current one; 2: fsync the folder afterwards; 4: not of
                            the current one, and there is no answer: another request follows, whose answer is
                            for both.                                                     Answer: S error
    P size name             create `name` in the folder and preallocate `size` bytes.     Answer: P error name
    G size name             extend the file `name` to `size` bytes with room on the disk. Answer: P error name
    C size name 0 new name  turn `name` into `new name`, `size` bytes long and blank at its beginning.
                                                                                      Answer: P error new name
    R name                  delete `name` and fsync the folder.                           Answer: R error name

Flags are one byte, sizes eight, errors (an errno, 0: done) four, big-endian. Syncs are requested on SOCKET,
the others on CHORES. A second thread serves CHORES, because freeing or allocating a large file must not delay
a sync. All answers go to SOCKET. The helper ends when its sockets are closed, that is with the broker,
however the broker ends. Until then it has the inherited lock of the folder, so its last work on files cannot
meet the next broker. The helper ignores the terminal's SIGINT and a service manager's SIGTERM, which reach
the whole group.
"""

import _thread
import array
import os
import signal
import socket
import sys

NEW_FILE = 1
FOLDER = 2
MORE = 4
ATTACHED_MAX = 200  # files in one request; the kernel passes on 253
PACKET_MAX = 4096
BLANK = bytes(44)  # the length of a batch's header


def answer(sock: socket.socket, kind: bytes, error: OSError | None, name: bytes = b"") -> None:
    """Send the result of a request; a broker that has ended needs no answer."""
    number = 0 if error is None else (error.errno or 5)
    try:
        sock.send(kind + number.to_bytes(4, "big") + name)
    except OSError:
        return


def prepare(path: str, size: int) -> None:
    """Create a file of zeros that has its room on the disk."""
    if os.path.exists(path):
        os.unlink(path)
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    try:
        os.posix_fallocate(fd, 0, size)
    except OSError:
        os.unlink(path)
        raise
    finally:
        os.close(fd)


def grow(path: str, size: int) -> None:
    """Extend a file with zeros that have room on the disk."""
    fd = os.open(path, os.O_RDWR)
    try:
        os.posix_fallocate(fd, 0, size)
    finally:
        os.close(fd)


def recycle(path: str, new_path: str, size: int) -> None:
    """Turn a dead segment's file into one for the next segment."""
    os.rename(path, new_path)
    fd = os.open(new_path, os.O_RDWR)
    try:
        os.ftruncate(fd, size)
        os.pwrite(fd, BLANK, 0)
    finally:
        os.close(fd)


def remove(path: str, folder_fd: int) -> None:
    """Delete a file for good."""
    if os.path.exists(path):
        os.unlink(path)
    os.fsync(folder_fd)


def serve_chores(folder: str, folder_fd: int, chores: socket.socket, answers: socket.socket) -> None:
    """Preallocate, recycle and delete files."""
    while True:
        request = chores.recv(PACKET_MAX)
        if not request:
            return
        kind = request[:1]
        size = int.from_bytes(request[1:9], "big")
        old_name, _, name = request[9:].rpartition(b"\0") if kind != b"R" else (b"", b"", request[1:])
        path = os.path.join(folder, name.decode())
        problem: OSError | None = None
        try:
            if kind == b"P":
                prepare(path, size)
            elif kind == b"G":
                grow(path, size)
            elif kind == b"C":
                recycle(os.path.join(folder, old_name.decode()), path, size)
            else:
                remove(path, folder_fd)
        except OSError as error:
            problem = error
        answer(answers, b"R" if kind == b"R" else b"P", problem, name)


def serve_syncs(folder_fd: int, sock: socket.socket) -> None:
    """Sync the current file at each request."""
    current = -1
    problem: OSError | None = None
    space = socket.CMSG_SPACE(4 * (ATTACHED_MAX + 1))
    while True:
        try:
            request, ancillary, _, _ = sock.recvmsg(PACKET_MAX, space)
        except ConnectionResetError:  # the broker has ended without reading the latest answer
            return
        if not request:
            return
        attached: list[int] = []
        for _, _, data in ancillary:
            descriptors = array.array("i")
            descriptors.frombytes(data)
            attached += descriptors
        flags = request[1]
        try:
            if flags & NEW_FILE:
                if current >= 0:
                    os.close(current)
                current = attached.pop()
            for other in attached:
                os.fdatasync(other)
            if not flags & MORE:
                os.fdatasync(current)
            if flags & FOLDER:
                os.fsync(folder_fd)
        except OSError as error:
            problem = problem or error
        for other in attached:
            os.close(other)
        if not flags & MORE:
            answer(sock, b"S", problem)
            problem = None


def main() -> None:
    """Serve until the broker has ended."""
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    folder = sys.argv[1]
    folder_fd = os.open(folder, os.O_RDONLY | os.O_DIRECTORY)  # now, while there are descriptors
    sock = socket.socket(fileno=int(sys.argv[2]))
    chores = socket.socket(fileno=int(sys.argv[3]))
    _thread.start_new_thread(serve_chores, (folder, folder_fd, chores, sock))
    serve_syncs(folder_fd, sock)


if __name__ == "__main__":
    main()
