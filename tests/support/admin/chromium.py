"""Debian's Chromium without a window, and a page of it as its debugger sees the page. [DevTools protocol]"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from pathlib import Path
from typing import Any

from websockets.asyncio.client import ClientConnection, connect

from tests.support.admin.api import fetch
from tests.support.daemon.daemon import PATIENCE_S


@contextmanager
def running_chromium(folder: Path) -> Iterator[str]:
    """Run Chromium; yield the address that controls its pages. `folder`: for the profile."""
    process = subprocess.Popen(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--remote-debugging-port=0", f"--user-data-dir={folder}", "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"HOME": str(folder)},
    )  # fmt: skip
    assert process.stderr is not None
    for line in process.stderr:
        if b"DevTools listening on ws://" in line:
            place = line.decode().split("ws://")[1].split("/")[0]
            break
    else:
        raise AssertionError("Chromium did not start")
    yield place
    process.terminate()
    process.wait(PATIENCE_S)
    process.stderr.close()


def log_in(page: Any, base: str, user: str = "guest", password: str = "guest") -> None:
    """Fill in and send the form of the management page. `page`: of Playwright. `base`: the page's address."""
    page.goto(f"{base}/")
    page.fill("[name=username]", user)
    page.fill("[name=password]", password)
    page.click("button[type=submit]")


class Tab:
    """A page of the browser, as its debugger sees it."""

    def __init__(self, socket: ClientConnection) -> None:
        self._socket = socket
        self._number = 0
        self._told: list[Any] = []  # events that nobody has looked at yet

    async def do(self, method: str, **parameters: Any) -> Any:
        """Call a method of the debugger; returns its result."""
        self._number += 1
        await self._socket.send(json.dumps({"id": self._number, "method": method, "params": parameters}))
        async with asyncio.timeout(PATIENCE_S):
            while True:
                document = json.loads(await self._socket.recv())
                if document.get("id") == self._number:
                    assert "error" not in document, document
                    return document["result"]
                self._told.append(document)

    async def evaluate(self, script: str) -> Any:
        """Return the value of an expression of JavaScript in the page."""
        result = await self.do("Runtime.evaluate", expression=script, returnByValue=True)
        assert "exceptionDetails" not in result, result["exceptionDetails"]
        return result["result"].get("value")

    async def answer(self, url: str) -> tuple[int, dict[str, str]]:
        """The status of the next answer from `url`, and the request's headers."""
        sent: dict[str, dict[str, str]] = {}
        async with asyncio.timeout(PATIENCE_S):
            while True:
                document = self._told.pop(0) if self._told else json.loads(await self._socket.recv())
                found = document.get("params", {})
                if document.get("method") == "Network.requestWillBeSentExtraInfo":
                    sent[found["requestId"]] = {name.lower(): each for name, each in found["headers"].items()}
                if document.get("method") == "Network.responseReceived" and found["response"]["url"] == url:
                    return found["response"]["status"], sent.get(found["requestId"], {})

    def take_events(self, *methods: str) -> list[Any]:
        """Return the parameters of the events of these methods since the last call, and forget all events."""
        told, self._told = self._told, []
        return [document["params"] for document in told if document.get("method") in methods]


@asynccontextmanager
async def opened_tab(browser: str) -> AsyncIterator[Tab]:
    """Control the page that `browser` shows."""
    pages = fetch(f"http://{browser}/json/list").json()
    url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
    async with connect(url, max_size=None) as socket:
        yield Tab(socket)
