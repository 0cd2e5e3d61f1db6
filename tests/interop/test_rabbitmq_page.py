"""RabbitMQ's own management page in Chromium: the files of Debian's package, in front of our HTTP API."""

import asyncio
import http.client
import shutil
import threading
from collections.abc import AsyncIterator, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import pytest
import pytest_asyncio

from tests.support.admin.api import Api
from tests.support.admin.chromium import Tab, opened_tab, running_chromium
from tests.support.admin.estate import QUEUES, running_estate
from tests.support.daemon.daemon import PATIENCE_S

PLUGINS = Path("/usr/lib/rabbitmq/lib")
PAGE = next(PLUGINS.glob("rabbitmq_server-*/plugins/rabbitmq_management-*/priv/www"), None)

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.amqpd_only("is about amqpd's HTTP API"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed"),
    pytest.mark.skipif(PAGE is None, reason="rabbitmq-server is not installed"),
    pytest.mark.asyncio(loop_scope="module"),
]

VIEWS = {
    "/": "Overview",
    "/nodes/NODE": "Node NODE",
    "/cluster-name": "Cluster name",
    "/connections": "Connections",
    "/connections/CONNECTION091": "Connection",
    "/connections/CONNECTION10": "Connection",
    "/channels": "Channels",
    "/channels/CHANNEL": "Channel:",
    "/exchanges": "Exchanges",
    "/exchanges/%2F/events": "Exchange: events",
    "/exchanges/%2F/amq.default": "Exchange: (AMQP default)",
    "/queues": "Queues",
    **{f"/queues/%2F/{queue}": f"Queue {queue}" for queue in (*QUEUES, "called", "watched", "own")},
    "/users": "Users",
    "/users/guest": "User: guest",
    "/users/seller": "User: seller",
    "/vhosts": "Virtual Hosts",
    "/vhosts/%2F": "Virtual Host: /",
    "/policies": "Policies",
    "/policies/%2F/limit": "Policy: limit",
    "/limits": "Limits",
    "/feature-flags": "Feature Flags",
}
"""The views of the page by their addresses behind `#`, with the beginning of their titles."""

WRONG = ("NaN", "undefined", "Infinity", "[object Object]")
TROUBLES = ("Runtime.exceptionThrown", "Runtime.consoleAPICalled", "Log.entryAdded")


class Front(SimpleHTTPRequestHandler):
    """Serves RabbitMQ's files, and forwards the requests for the API to the broker.

    `refused` collects the answers of the API with an error.
    """

    protocol_version = "HTTP/1.1"
    server_version = "front"

    def __init__(self, *arguments: Any, admin: str, refused: list[str], **options: Any) -> None:
        self._admin = urlsplit(admin).netloc
        self._refused = refused
        super().__init__(*arguments, **options)

    def do_GET(self) -> None:
        if self.path.startswith("/api/"):
            self._forward()
        else:
            super().do_GET()

    def do_PUT(self) -> None:
        self._forward()

    def do_POST(self) -> None:
        self._forward()

    def do_DELETE(self) -> None:
        self._forward()

    def _forward(self) -> None:
        body = self.rfile.read(int(self.headers.get("content-length", 0)))
        connection = http.client.HTTPConnection(self._admin, timeout=PATIENCE_S)
        connection.request(self.command, self.path, body, dict(self.headers.items()))
        answer = connection.getresponse()
        content = answer.read()
        connection.close()
        if answer.status >= 400:
            self._refused.append(f"{self.command} {self.path}: {answer.status} {content.decode()}")
        self.send_response(answer.status)
        self.send_header("content-type", answer.headers.get("content-type", "text/plain"))
        self.send_header("content-length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *_: Any) -> None:
        pass


@contextmanager
def running_front(admin: str, refused: list[str]) -> Iterator[str]:
    """Serve the page; yield its address."""
    handler = partial(Front, directory=str(PAGE), admin=admin, refused=refused)
    server = ThreadingHTTPServer(("127.0.0.1", 0), handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    yield f"http://127.0.0.1:{server.server_address[1]}/"
    server.shutdown()
    thread.join()
    server.server_close()


class Page:
    """The page in the browser, of a broker in use."""

    def __init__(self, tab: Tab, api: Api, refused: list[str]) -> None:
        self.tab = tab
        self.api = api
        self._refused = refused
        opened = [each for each in api.get("connections") if each["user"] == "guest"]
        connections = {each["protocol"]: each["name"] for each in opened}
        self._names = {
            "NODE": api.get("overview")["node"],
            "CONNECTION091": connections["AMQP 0-9-1"],
            "CONNECTION10": connections["AMQP 1-0"],
            "CHANNEL": f"{connections['AMQP 0-9-1']} (1)",
        }

    async def log_in(self, address: str) -> None:
        """Open the page, and log in with its form."""
        for part in ("Runtime", "Log", "Page"):
            await self.tab.do(f"{part}.enable")
        await self.tab.do("Page.navigate", url=f"{address}#/")  # without it the page logs an error itself
        await self.wait("document.querySelector('#login form') !== null && document.readyState == 'complete'")
        await self.tab.evaluate(
            "$('input[name=username]').val('guest'); $('input[name=password]').val('guest');"
            "$('#login form').submit()"
        )
        await self.wait("document.querySelector('#main :is(h1, h2)') !== null")
        await self.tab.evaluate("set_timer_interval(null)")  # the views are refreshed when the test wants

    async def wait(self, condition: str) -> None:
        """Wait until an expression of JavaScript is true."""
        async with asyncio.timeout(PATIENCE_S):
            while not await self.tab.evaluate(condition):  # noqa: ASYNC110 - the page tells nobody
                await asyncio.sleep(0.1)

    def resolve(self, text: str, encode: bool = True) -> str:
        """Return a text with the names of the objects of this broker."""
        for name, found in self._names.items():
            text = text.replace(name, quote(found, safe="") if encode else found)
        return text

    async def show(self, view: str) -> str:
        """Open a view, refresh it as the page does every 5 seconds, and return its text."""
        address = f"#{self.resolve(view)}"
        await self.tab.evaluate("document.querySelector('#main').innerHTML = ''")
        await self.tab.evaluate(
            f"if (location.hash == {address!r}) update(); else location.hash = {address!r}"
        )
        ready = "outstanding_reqs.length == 0 && document.querySelector('#main :is(h1, h2)') !== null"
        await self.wait(ready)
        await self.tab.evaluate("partial_update()")
        await self.wait(ready)
        text = "document.querySelector('#main').textContent"
        return " ".join(str(await self.tab.evaluate(text)).split())

    async def troubles(self) -> list[str]:
        """Return errors of scripts, messages on the console, warnings in a box, and refused requests."""
        boxes = await self.tab.evaluate(
            "$('.form-popup-warn, #debug, .status-error').map((_, box) => $(box).text()).get()"
        )
        refused = [*self._refused]
        self._refused.clear()
        events = self.tab.take_events(*TROUBLES)
        found = [str(event) for event in events if event.get("entry", {}).get("level", "error") == "error"]
        return found + [box for box in boxes if box.strip()] + refused


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def page(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[Page]:
    """RabbitMQ's page, logged in."""
    refused: list[str] = []
    with (
        running_estate(tmp_path_factory.mktemp("shown")) as daemon,
        running_front(daemon.admin, refused) as address,
        running_chromium(tmp_path_factory.mktemp("profile")) as browser,
    ):
        async with opened_tab(browser) as tab:
            api = Api(daemon.admin)
            page = Page(tab, api, refused)
            await page.log_in(address)
            yield page
            api.close()


async def test_the_log_in(page: Page) -> None:
    assert await page.troubles() == []


@pytest.mark.parametrize("view", VIEWS)
async def test_a_view_is_whole(page: Page, view: str) -> None:
    text = await page.show(view)
    assert await page.troubles() == []
    assert text.startswith(page.resolve(VIEWS[view], encode=False)), text
    assert [word for word in WRONG if word in text] == []
    assert "Not found" not in text


@pytest.mark.parametrize(
    ("view", "field", "choices"),
    [
        ("/exchanges", "type", {"direct", "fanout", "topic", "headers"}),
        ("/queues", "queuetype", {"classic", "quorum", "stream"}),
    ],
)
async def test_a_form_offers_the_types(page: Page, view: str, field: str, choices: set[str]) -> None:
    await page.show(view)
    options = f"$('#main select[name={field}] option').map((_, each) => each.value).get()"
    assert choices <= set(await page.tab.evaluate(options))
