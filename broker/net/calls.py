"""The calls of dispatchers in the event loop: each is a task, by HTTP or with a command."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Callable
from contextvars import Context
from typing import Final, final

import structlog

from broker.dispatch.answers import FAILED, Answer
from broker.dispatch.definition import Definition, Reference
from broker.dispatch.dispatcher import Call
from broker.dispatch.payload import SecretError
from broker.net.commands import run_command
from broker.net.http_calls import HttpCalls, missing_library
from broker.net.tls import open_regular

SECRET_SECONDS: Final = 10.0  # a secret that was read is used for so long
SECRET_BYTES_MAX: Final = 65_536

_log = structlog.get_logger("amqpd")


@final
class Calls:
    """The caller of all dispatchers of a broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._http = HttpCalls()
        self._tasks: set[asyncio.Task[None]] = set()
        self._context = Context()  # a call is not part of the request that has caused it

    def begin(self, call: Call) -> None:
        """Begin a call."""
        task = self._loop.create_task(self._run(call), context=self._context)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)
        call.task = task

    def cancel(self, call: Call) -> None:
        """Break off a call: close its connection, or kill its command."""
        if isinstance(call.task, asyncio.Task):
            call.task.cancel()

    async def wait(self, seconds: float) -> None:
        """Wait until all calls have ended, for some seconds at most."""
        if self._tasks:
            await asyncio.wait(list(self._tasks), timeout=seconds)

    async def close(self) -> None:
        """Break off all calls, and close all connections."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await self._http.close()

    async def _run(self, call: Call) -> None:
        try:
            answer = await (run_command(call) if call.request is None else self._http.call(call))
        except Exception as error:  # an error of ours must not keep the messages of the call for ever
            _log.exception("a call of a dispatcher has failed unexpectedly", target=call.definition.target)
            answer = Answer(FAILED, text=f"{type(error).__name__}: {error}")
        call.end(answer)


def unsupported(definition: Definition) -> str:
    """Return why this broker cannot call the target of a definition; "" if it can."""
    return "" if definition.url is None else missing_library()


@final
class StoredSecrets:
    """The secrets that definitions refer to, read from files and from the environment of the broker."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._kept: dict[Reference, tuple[float, bytes]] = {}

    def read(self, reference: Reference) -> bytes:
        """Return a secret, which was read at most SECRET_SECONDS ago. Raises SecretError."""
        now = self._clock()
        kept = self._kept.get(reference)
        if kept is None or now - kept[0] >= SECRET_SECONDS:
            self._forget_old(now)
            kept = self._kept[reference] = (now, _read_secret(reference))
        return kept[1]

    def _forget_old(self, now: float) -> None:
        """Forget the secrets that must be read again: some may be of deleted dispatchers."""
        self._kept = {key: kept for key, kept in self._kept.items() if now - kept[0] < SECRET_SECONDS}


def _read_secret(reference: Reference) -> bytes:
    if reference.kind == "env":
        value = os.environb.get(reference.name.encode())
        if value is None:
            raise SecretError(f"the variable {reference.name} of the broker, a secret, is not set")
        return value
    try:
        with open_regular(reference.name) as file:
            secret = file.read(SECRET_BYTES_MAX + 1)
    except OSError as error:
        raise SecretError(f"the file {reference.name}, a secret, cannot be read: {error.strerror}") from error
    if len(secret) > SECRET_BYTES_MAX:
        raise SecretError(f"the file {reference.name}, a secret, has more than {SECRET_BYTES_MAX} bytes")
    return secret
