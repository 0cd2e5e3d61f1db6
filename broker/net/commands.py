"""Commands of dispatchers: processes that get messages on standard input, each in a process group of its own.

A command does not inherit the environment of the broker, which may have secrets. When a command ends, is
killed or takes too long, all processes of its group are killed, and the broker closes its ends of the pipes.
A process that has left the group, as a daemon does, goes on. Its open pipes keep nothing in the broker.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final, cast, final

from broker.dispatch.answers import UNREACHED, Answer, answer_of_exit
from broker.dispatch.dispatcher import Call

OUTPUT_BYTES_MAX: Final = 2000  # the beginning of the output is kept; the rest is dropped
PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
"""The variables of the broker that a command gets."""

BROKEN_PIPE: Final = (OSError, RuntimeError)
"""Errors of a pipe whose process has ended; uvloop raises RuntimeError when the pipe is closed already."""

DRAIN_SECONDS: Final = 1.0
"""How long to wait for the rest of the output: all processes of the group have been killed."""

STDIN: Final = 0
STDOUT: Final = 1


@final
class _Run(asyncio.SubprocessProtocol):
    """A command that runs. `output`: the beginning of what it writes; standard error is part of it."""

    def __init__(self) -> None:
        self.output = bytearray()
        self.exited = asyncio.Event()
        self.drained = asyncio.Event()  # nobody can write to the output any more

    def pipe_data_received(self, fd: int, data: bytes) -> None:
        """Keep the beginning of the output."""
        self.output += data[: OUTPUT_BYTES_MAX - len(self.output)]

    def pipe_connection_lost(self, fd: int, exc: Exception | None) -> None:
        """Note the end of the output."""
        if fd == STDOUT:
            self.drained.set()

    def process_exited(self) -> None:
        """Note the end of the command itself."""
        self.exited.set()


async def run_command(call: Call) -> Answer:
    """Run the command of a call with its input, and return its answer. A cancelled task kills the command."""
    definition, given = call.definition, call.input
    assert given is not None, "the dispatcher has made the input"
    try:
        transport, run = await asyncio.get_running_loop().subprocess_exec(
            _Run,
            *definition.command,
            stdin=asyncio.subprocess.PIPE,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            env=base_environment(os.environ) | given.environment,
            cwd="/",
            start_new_session=True,
        )
    except (OSError, ValueError) as error:
        reason = error.strerror if isinstance(error, OSError) else str(error)
        return Answer(UNREACHED, text=f"{definition.command[0]} cannot be started: {reason}")
    try:
        _write(transport, given.body)
        await run.exited.wait()
        _kill_group(transport.get_pid())
        with suppress(TimeoutError):
            await asyncio.wait_for(run.drained.wait(), DRAIN_SECONDS)
    finally:  # also when the call is broken off
        _kill_group(transport.get_pid())
        _close(transport)
        await run.exited.wait()  # killed processes end
    status = transport.get_returncode()
    assert status is not None, "the command has ended"
    return answer_of_exit(status, bytes(run.output).decode("utf-8", "replace").strip())


def base_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that commands get."""
    return {name: environment[name] for name in PASSED_ON if name in environment}


def _write(transport: asyncio.SubprocessTransport, body: bytes) -> None:
    """Write the whole input and close it; a command need not read it, and may have ended already."""
    stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(STDIN))
    with suppress(*BROKEN_PIPE):
        stdin.write(body)
        stdin.close()  # after the buffer has been written


def _close(transport: asyncio.SubprocessTransport) -> None:
    """Close the broker's ends of the pipes now, with an unread input and with writers of output."""
    stdin = cast("asyncio.WriteTransport", transport.get_pipe_transport(STDIN))
    with suppress(*BROKEN_PIPE):
        stdin.abort()
    transport.close()


def _kill_group(leader: int | None) -> None:
    """Kill all processes of a group, which may have ended."""
    if leader is not None:
        with suppress(ProcessLookupError, PermissionError):
            os.killpg(leader, signal.SIGKILL)
