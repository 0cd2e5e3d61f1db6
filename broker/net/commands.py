"""Commands of dispatchers: processes that get messages on standard input, each in a process group of its own.

A command does not inherit the environment of the broker, which may have secrets. When a command ends, is
killed or takes too long, all processes of its group are killed, so none outlives its call.
"""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Mapping
from contextlib import suppress
from typing import Final

from broker.dispatch.answers import UNREACHED, Answer, answer_of_exit
from broker.dispatch.dispatcher import Call

OUTPUT_BYTES_MAX: Final = 2000  # the beginning of the output is kept; the rest is dropped
PIECE: Final = 65_536
PASSED_ON: Final = ("PATH", "HOME", "LANG", "LC_ALL", "LC_CTYPE", "TZ", "TMPDIR", "USER", "LOGNAME")
"""The variables of the broker that a command gets."""

BROKEN_PIPE: Final = (OSError, RuntimeError)
"""Errors of a pipe whose process has ended; uvloop raises RuntimeError when the pipe is closed already."""

DRAIN_SECONDS: Final = 1.0
"""How long to wait for the rest of the output: all processes that could write more have been killed."""


async def run_command(call: Call) -> Answer:
    """Run the command of a call with its input, and return its answer. A cancelled task kills the command."""
    definition, given = call.definition, call.input
    assert given is not None, "the dispatcher has made the input"
    try:
        process = await asyncio.create_subprocess_exec(
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
    assert process.stdin is not None, "standard input is a pipe"
    assert process.stdout is not None, "standard output is a pipe"
    output = bytearray()
    reading = asyncio.create_task(_read(process.stdout, output))
    writing = asyncio.create_task(_write(process.stdin, given.body))
    try:
        status = await process.wait()
    finally:  # also when the call is broken off
        _kill_group(process.pid)
        for task in (reading, writing):
            if task is writing or not task.done():
                with suppress(TimeoutError, asyncio.CancelledError):
                    await asyncio.wait_for(task, DRAIN_SECONDS)
        if process.returncode is None:
            await process.wait()
    return answer_of_exit(status, bytes(output).decode("utf-8", "replace").strip())


def base_environment(environment: Mapping[str, str]) -> dict[str, str]:
    """Return the part of an environment that commands get."""
    return {name: environment[name] for name in PASSED_ON if name in environment}


async def _write(stream: asyncio.StreamWriter, body: bytes) -> None:
    """Write the whole input and close it; a command need not read it, and may have ended already."""
    with suppress(*BROKEN_PIPE):
        stream.write(body)
        await stream.drain()
    with suppress(*BROKEN_PIPE):
        stream.close()
        await stream.wait_closed()


async def _read(stream: asyncio.StreamReader, output: bytearray) -> None:
    """Read the output to its end, and keep its beginning."""
    while piece := await stream.read(PIECE):
        output += piece[: OUTPUT_BYTES_MAX - len(output)]


def _kill_group(leader: int) -> None:
    """Kill all processes of a group, which may have ended."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(leader, signal.SIGKILL)
