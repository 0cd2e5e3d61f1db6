"""Read strace's output of a broker, and check that nothing was confirmed before it was synced.

strace writes a call on one line if nothing happened in any other process between its entry and its return,
and on two lines (`<unfinished ...>`, `<... resumed>`) otherwise. So the order of lines is that of entries
and returns, across all processes.
"""

import re
import struct
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.support.amqp091.frames import HEAD, METHOD

CALLS = "write,writev,pwrite64,pwritev,pwritev2,sendto,sendmsg,fdatasync,fsync"
ACK = bytes.fromhex("003c0050")

_LINE = re.compile(r"(\d+) +[\d.]+ (.*)")
_CALL = re.compile(r"(\w+)\((.*?)(?:\) += (-?\d+)(?: .*)?| <unfinished \.\.\.>)")
_RESUMED = re.compile(r"<\.\.\. (\w+) resumed>.*\) += (-?\d+)(?: .*)?")
_FILE = re.compile(r"\d+<(.*?)>(?=[,)]|$)")
_TEXT = re.compile(r'"((?:\\x[0-9a-f]{2})*)"')


class Call(NamedTuple):
    """A system call on a descriptor."""

    pid: int
    name: str
    file: str  # path or socket
    data: bytes
    entered: int  # line of the trace
    returned: int  # line of the trace
    result: int


def command(trace: Path) -> tuple[str, ...]:
    """Return the strace command to prepend; the traced process stays our direct child."""
    options = ("-e", f"trace={CALLS}", "-ttt", "-yy", "-xx", "-s", "16000000")
    return ("strace", "-D", "-f", "-o", str(trace), *options)


def parse(trace: Path) -> list[Call]:
    """Return all finished calls, in the order of their entries."""
    calls: list[Call] = []
    unfinished: dict[int, tuple[str, str, int]] = {}
    with trace.open() as lines:
        for number, line in enumerate(lines):
            match = _LINE.fullmatch(line.rstrip("\n"))
            assert match, line[:200]
            pid, text = int(match[1]), match[2]
            if resumed := _RESUMED.fullmatch(text):
                name, arguments, entered = unfinished.pop(pid)
                calls.append(_call(pid, name, arguments, entered, number, int(resumed[2])))
            elif call := _CALL.fullmatch(text):
                if call[3] is None:
                    unfinished[pid] = (call[1], call[2], number)
                else:
                    calls.append(_call(pid, call[1], call[2], number, number, int(call[3])))
            else:
                assert text.startswith(("---", "+++")), text[:200]
    return sorted(calls, key=lambda call: call.entered)


def _call(pid: int, name: str, arguments: str, entered: int, returned: int, result: int) -> Call:
    file = _FILE.match(arguments)
    assert file, arguments[:200]
    assert '"...' not in arguments, "strace cut the data"
    data = b"".join(_bytes(text) for text in _TEXT.findall(arguments))
    return Call(pid, name, _bytes(file[1]).decode(), data[: max(result, 0)], entered, returned, result)


def _bytes(text: str) -> bytes:
    if "\\x" not in text:
        return text.encode()
    return bytes.fromhex(text.replace("\\x", ""))


def early_confirms(
    calls: Sequence[Call], folder: Path, published: Mapping[str, Mapping[int, bytes]]
) -> list[str]:
    """Return the confirms that were sent too early.

    `published` says for each publisher's socket (HOST:PORT) which delivery tags carry which marks; every mark
    is in the body of one persistent message. Fails if a mark was never written or a tag never confirmed.
    """
    faults = []
    writes = _writes(calls, folder, [mark for marks in published.values() for mark in marks.values()])
    main = calls[0].pid
    syncs = [call for call in calls if call.name == "fdatasync" and call.result == 0 and call.pid != main]
    for peer, marks in published.items():
        confirmed = _confirms(calls, peer)
        for tag, mark in marks.items():
            write, ack = writes[mark], confirmed[tag]
            sync = next((s for s in syncs if s.file == write.file and s.entered > write.returned), None)
            if sync is None or sync.returned >= ack.entered:
                faults.append(f"{peer}: {mark!r}, tag {tag}, confirmed in line {ack.entered} before its sync")
    return faults


def _writes(calls: Sequence[Call], folder: Path, marks: Sequence[bytes]) -> dict[bytes, Call]:
    """Return the last write of each mark to a file in `folder`."""
    pattern = re.compile(rb"<mark [0-9a-z ]+>")
    found: dict[bytes, Call] = {}
    for call in calls:
        if call.file.startswith(str(folder)) and "write" in call.name:
            found.update(dict.fromkeys(pattern.findall(call.data), call))
    missing = [mark for mark in marks if mark not in found]
    assert not missing, f"never written: {missing[:5]}"
    return found


def _confirms(calls: Sequence[Call], peer: str) -> dict[int, Call]:
    """Return, for each delivery tag, the call that sent the first byte of its confirm to `peer`."""
    sent = [call for call in calls if call.file.endswith(f"->{peer}]") and call.data]
    stream = b"".join(call.data for call in sent)
    starts: list[int] = []
    total = 0
    for call in sent:
        starts.append(total)
        total += len(call.data)
    confirmed: dict[int, Call] = {}
    at = current = 0
    while at < len(stream):
        kind, _, size = HEAD.unpack_from(stream, at)
        if kind == METHOD and stream[at + 7 : at + 11] == ACK:
            while current + 1 < len(starts) and starts[current + 1] <= at:
                current += 1
            tag, multiple = struct.unpack_from(">Q?", stream, at + 11)
            for number in range(max(confirmed, default=0) + 1 if multiple else tag, tag + 1):
                confirmed[number] = sent[current]
        at += size + 8
    return confirmed
