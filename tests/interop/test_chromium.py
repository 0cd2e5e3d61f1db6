"""A page of another site in Chromium, with the administrator's password in the browser's memory."""

import asyncio
import base64
import json
import os
import shutil
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
from websockets.asyncio.client import ClientConnection, connect

from tests.support.admin.api import Api, fetch
from tests.support.daemon.daemon import PATIENCE_S, Daemon

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.amqpd_only("is about amqpd's admin port"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed"),
]

PAGE = """<!doctype html><title>other site</title>
<form method=post enctype=text/plain action="{target}/api/users/bulk-delete">
<input name='{{"users": ["victim"], "x": "' value='"}}'></form>
<script>document.forms[0].submit()</script>"""


@pytest.fixture
def other_site(daemon: Daemon) -> Iterator[str]:
    """A page that sends a form to the broker as soon as it is opened; its address."""

    class Page(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            self.send_header("content-type", "text/html")
            self.end_headers()
            self.wfile.write(PAGE.format(target=daemon.admin).encode())

        def log_message(self, *_: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://localhost:{server.server_address[1]}/"  # another site than 127.0.0.1
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def browser(tmp_path: Path) -> Iterator[str]:
    """Chromium without a window; yields the address that controls its pages."""
    process = subprocess.Popen(
        [
            "chromium", "--headless", "--no-sandbox", "--disable-gpu", "--no-first-run",
            "--remote-debugging-port=0", f"--user-data-dir={tmp_path}", "about:blank",
        ],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env=os.environ | {"HOME": str(tmp_path)},
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
                    return document["result"]
                self._told.append(document)

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


async def test_a_form_of_another_site_changes_nothing(daemon: Daemon, other_site: str, browser: str) -> None:
    api = Api(daemon.admin)
    api.put("users", "victim", password="x", tags="")
    pages = fetch(f"http://{browser}/json/list").json()
    tab_url = next(page["webSocketDebuggerUrl"] for page in pages if page["type"] == "page")
    async with connect(tab_url, max_size=None) as socket:
        tab = Tab(socket)
        await tab.do("Network.enable")
        password = base64.b64encode(b"guest:guest").decode()
        await tab.do("Network.setExtraHTTPHeaders", headers={"authorization": f"Basic {password}"})
        target = f"{daemon.admin}/api/users/bulk-delete"
        await tab.do("Page.navigate", url=other_site)
        status, headers = await tab.answer(target)
        assert (status, headers["sec-fetch-site"]) == (403, "cross-site")
        assert headers["origin"] == other_site.rstrip("/")
        assert headers["authorization"] == f"Basic {password}"
        # the broker's own pages may change what their user may
        await tab.do("Page.navigate", url=f"{daemon.admin}/api/whoami")
        assert (await tab.answer(f"{daemon.admin}/api/whoami"))[0] == 200
        script = "fetch('/api/users/victim', {method: 'DELETE'}).then(answer => answer.status)"
        done = await tab.do("Runtime.evaluate", expression=script, awaitPromise=True)
        assert done["result"]["value"] == 204
    assert {user["name"] for user in api.get("users")} == {"guest"}
    api.close()
