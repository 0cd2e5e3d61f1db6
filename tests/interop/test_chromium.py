"""A page of another site in Chromium, with the administrator's password in the browser's memory."""

import base64
import shutil
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from tests.support.admin.api import Api
from tests.support.admin.chromium import opened_tab, running_chromium
from tests.support.daemon.daemon import Daemon

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
    with running_chromium(tmp_path) as place:
        yield place


async def test_a_form_of_another_site_changes_nothing(daemon: Daemon, other_site: str, browser: str) -> None:
    api = Api(daemon.admin)
    api.put("users", "victim", password="x", tags="")
    async with opened_tab(browser) as tab:
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
