"""The management page in a real Chromium: every view, every action, harmful names, and axe-core.

A violation of the Content-Security-Policy, an error on the console or a failed script fails a test. The
screenshots are in the folder of the test; with SCREENSHOTS=FOLDER those of the documents are written there.
"""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pika
import pytest

from tests.support.admin.api import Api, amqp
from tests.support.admin.chromium import log_in
from tests.support.daemon.daemon import PATIENCE_S, Daemon

sync_api = pytest.importorskip("playwright.sync_api", reason="needs playwright, of the extra `peers`")

pytestmark = [
    pytest.mark.nightly,
    pytest.mark.amqpd_only("is amqpd's own page"),
    pytest.mark.skipif(shutil.which("chromium") is None, reason="Chromium is not installed"),
]

HOSTILE = "<img src=x onerror=alert(1)>'\"&%2F/../#?{{7*7}}${1}"
VIEWS = (
    *("overview", "queues", "exchanges", "streams", "connections", "delayed", "dead-letters", "forwarding"),
    *("vhosts", "users", "policies", "definitions", "journal", "audit", "new-queue"),
    *("queue/%2F/orders", "exchange/%2F/amq.topic", "user/guest"),
)
WIDTHS = {"wide": 1300, "narrow": 390}


BEYOND = """[...document.querySelectorAll("main *, header *")]
    .filter((each) => !each.closest(".scroll, nav.main ul, dialog, .hidden, .u-over, .uplot"))
    .filter((each) => each.getBoundingClientRect().right > innerWidth + 1)
    .map((each) => each.outerHTML.slice(0, 120))"""
"""The elements that are wider than the screen, apart from those in regions that scroll."""


class Watched:
    """A page of the browser, and all that went wrong on it."""

    def __init__(self, page: Any, base: str) -> None:
        self.page = page
        self.base = base
        self.wrong: list[str] = []
        page.on("console", self._on_console)
        page.on("pageerror", lambda error: self.wrong.append(f"script: {error}"))
        page.on("requestfailed", lambda request: self.wrong.append(f"failed: {request.url}"))
        page.on("request", self._on_request)

    def _on_console(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.wrong.append(f"console: {message.text}")

    def _on_request(self, request: Any) -> None:
        if not request.url.startswith((self.base, "blob:", "data:")):
            self.wrong.append(f"elsewhere: {request.url}")

    def log_in(self, user: str = "guest", password: str = "guest") -> None:
        log_in(self.page, self.base, user, password)
        self.page.wait_for_selector("nav.main")

    def go(self, view: str) -> None:
        """Open a view, and wait for its data."""
        self.page.goto(f"{self.base}/#/{view}")
        self.page.wait_for_selector("main h1")
        self.page.wait_for_load_state("networkidle")

    def open(self, section: str) -> Any:
        """Open a part of the view; return it."""
        part = self.page.locator("section.part", has=self.page.get_by_role("button", name=section))
        button = part.get_by_role("button", name=section).first
        if button.get_attribute("aria-expanded") == "false":
            button.click()
        return part

    def confirm(self, verb: str, typed: str = "") -> None:
        """Confirm in the dialog, and wait until it is closed."""
        dialog = self.page.locator("dialog")
        if typed:
            dialog.locator("input").last.fill(typed)
        dialog.get_by_role("button", name=verb, exact=True).click()
        dialog.wait_for(state="detached")

    def check(self) -> None:
        """Fail if anything went wrong since the last call."""
        wrong, self.wrong = self.wrong, []
        assert wrong == []


@pytest.fixture(scope="module")
def broker(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Daemon]:
    """A broker with queues of all kinds, a consumer, and hostile names everywhere."""
    options = ("--journal", "full", "--dispatch-allow", "/usr/bin/tee")
    daemon = Daemon(tmp_path_factory.mktemp("page"), options).wait_until_ready().load_api()
    api = Api(daemon.admin)
    api.put("vhosts", HOSTILE)
    for vhost in ("/", HOSTILE):
        for name in ("orders", HOSTILE):
            api.put("queues", vhost, name, durable=True)
            for number in range(30):
                properties = {"headers": {HOSTILE: HOSTILE, "n": number}, "message_id": str(number)}
                body = {"routing_key": name, "payload": f'{{"n": {number}, "t": "{HOSTILE[:5]}"}}'}
                api.post(
                    "exchanges",
                    vhost,
                    "amq.default",
                    "publish",
                    status=200,
                    body=body | {"properties": properties},
                )
        api.put("exchanges", vhost, HOSTILE, type="topic")
        api.post("bindings", vhost, "e", HOSTILE, "q", "orders", status=201, body={"routing_key": HOSTILE})
    api.put("queues", "/", "log", durable=True, arguments={"x-queue-type": "stream"})
    api.put(
        "queues",
        "/",
        "front",
        arguments={"x-queue-kind": "partitioned", "x-partition-by": "k", "x-partition-members": ["orders"]},
    )
    api.put("policies", "/", HOSTILE, pattern="^never", definition={"max-length": 5})
    api.put("users", HOSTILE, password="x", tags="management")
    api.put(
        "parameters",
        "shovel",
        "/",
        "s",
        value={"src-queue": "idle", "dest-queue": "there", "src-uri": "amqp://", "dest-uri": "amqp://"},
    )
    api.put("queues", "/", "called")
    api.put("dispatchers", "/", "d", queue="called", command="/usr/bin/tee")
    api.close()
    yield daemon
    daemon.stop()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    with sync_api.sync_playwright() as playwright:
        path = shutil.which("chromium")
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        yield browser
        browser.close()


@pytest.fixture
def seen(chromium: Any, broker: Daemon) -> Iterator[Watched]:
    """A page on which guest has logged in; nothing may go wrong on it."""
    context = chromium.new_context(viewport={"width": WIDTHS["wide"], "height": 900})
    context.set_default_timeout(PATIENCE_S * 1000)
    watched = Watched(context.new_page(), broker.admin)
    watched.log_in()
    yield watched
    watched.check()
    context.close()


def test_a_wrong_password_is_refused_in_words(chromium: Any, broker: Daemon) -> None:
    page = chromium.new_page()
    log_in(page, broker.admin, password="wrong")
    page.wait_for_selector("[role=alert]")
    assert page.inner_text("[role=alert]") == "The user or the password is wrong."
    page.close()


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_every_view_opens(seen: Watched, tmp_path: Path, width: str, scheme: str) -> None:
    seen.page.emulate_media(color_scheme=scheme)
    seen.page.set_viewport_size({"width": WIDTHS[width], "height": 900})
    for view in VIEWS:
        seen.go(view)
        assert seen.page.locator(".problem").count() == 0, (view, seen.page.inner_text(".problem"))
        assert "undefined" not in seen.page.inner_text("main"), view
        assert "NaN" not in seen.page.inner_text("main"), view
        beyond = seen.page.evaluate(BEYOND)
        assert beyond == [], f"{view} is wider than the screen"
        seen.page.screenshot(path=tmp_path / f"{view.replace('/', '_')}.png", full_page=True)
        seen.check()


def test_axe_finds_nothing(seen: Watched, tmp_path: Path) -> None:
    subprocess.run(
        ["npm", "install", "--no-save", "--silent", "axe-core@4"], cwd=tmp_path, check=True, timeout=300
    )
    script = (tmp_path / "node_modules/axe-core/axe.min.js").read_text()
    found = {}
    for view in VIEWS:
        seen.go(view)
        if view.startswith("queue/"):
            for section in (
                "Messages",
                "Publish a message",
                "Bindings",
                "Arguments and policies",
                "Stop, purge",
            ):
                seen.open(section)
        seen.page.evaluate(script)
        violations = seen.page.evaluate("axe.run().then((found) => found.violations)")
        if violations:
            found[view] = [
                (each["id"], each["nodes"][0]["html"][:200], len(each["nodes"])) for each in violations
            ]
    assert found == {}


def test_hostile_names_do_no_harm(seen: Watched, broker: Daemon) -> None:
    seen.page.on("dialog", lambda dialog: seen.wrong.append(f"dialog: {dialog.message}"))
    seen.go("queues")
    seen.page.get_by_role("link", name=HOSTILE, exact=True).first.click()
    seen.page.wait_for_selector("h1:has-text('onerror')")
    assert seen.page.inner_text("h1") == f"Queue {HOSTILE}"
    part = seen.open("Messages")
    part.get_by_role("button", name="Look").click()
    part.locator("article").first.wait_for()
    assert HOSTILE in part.locator("article").first.inner_text()
    for view in ("exchanges", "users", "vhosts", "policies"):
        seen.go(view)
        seen.page.get_by_text(HOSTILE).filter(visible=True).first.wait_for()  # not an option of a choice
    assert seen.page.locator("img").count() == 0


def test_messages_are_looked_at_moved_edited_and_deleted(seen: Watched, broker: Daemon) -> None:
    api = Api(broker.admin)
    for name in ("from", "to"):
        api.put("queues", "/", name)
    for number in range(5):
        body = {"routing_key": "from", "payload": str(number), "properties": {"priority": number}}
        api.post("exchanges", "/", "amq.default", "publish", status=200, body=body)
    seen.go("queue/%2F/from")
    part = seen.open("Messages")
    part.get_by_role("button", name="Look").click()
    part.locator("article").nth(4).wait_for()
    assert api.get("queues", "/", "from")["message_stats"]["deliver_get"] == 0, "nothing was taken"
    part.get_by_label("Selector").fill("JMSPriority = 3")
    part.get_by_role("button", name="Look").click()
    part.locator("article").nth(1).wait_for(state="detached")
    assert part.locator("article pre").all_inner_texts() == ["3"]
    part.get_by_label("Bodies as").select_option("hex")
    assert part.locator("article pre").first.inner_text().startswith("000000  33 ")
    part.get_by_label("To queue").fill("to")
    part.get_by_role("button", name="Move").click()
    part.locator(".done").wait_for()
    assert [api.get("queues", "/", name)["messages"] for name in ("from", "to")] == [4, 1]
    part.get_by_label("Selector").fill("")
    part.get_by_role("button", name="Look").click()
    part.locator("article").nth(3).wait_for()
    part.locator("article input[type=checkbox]").first.check()
    part.get_by_text("Edit 1 chosen messages").click()
    part.get_by_label("Properties").fill('{"headers": {"seen": true}}')
    part.get_by_role("button", name="Edit", exact=True).click()
    part.locator(".done", has_text="edit").wait_for()
    shown = api.get("queues", "/", "from", "messages")["messages"]
    assert [each["properties"].get("headers") for each in shown] == [None, None, None, {"seen": True}]
    part.get_by_role("button", name="Delete", exact=True).click()
    seen.confirm("Delete")
    assert api.get("queues", "/", "from")["messages"] == 0
    publish = seen.open("Publish a message")
    publish.get_by_label("Body").fill("hello")
    publish.get_by_role("button", name="Publish", exact=True).click()
    publish.locator(".done").wait_for()
    assert api.get("queues", "/", "from")["messages"] == 1
    api.close()


def test_a_queue_is_declared_bound_altered_stopped_purged_and_deleted(seen: Watched, broker: Daemon) -> None:
    api = Api(broker.admin)
    seen.go("new-queue")
    seen.page.get_by_label("Name").fill("made here")
    seen.page.get_by_label("Arguments").fill('{"x-max-length": 7}')
    seen.page.get_by_role("button", name="Declare").click()
    seen.page.wait_for_selector("h1:has-text('Queue made here')")
    assert api.get("queues", "/", "made here")["arguments"] == {"x-max-length": 7}
    bindings = seen.open("Bindings")
    bindings.get_by_label("Bind from exchange").select_option("amq.topic")
    bindings.get_by_label("Routing key").fill("a.*")
    bindings.get_by_role("button", name="Bind", exact=True).click()
    bindings.locator("td", has_text="a.*").wait_for()
    assert len(api.get("queues", "/", "made here", "bindings")) == 2
    arguments = seen.open("Arguments and policies")
    arguments.locator("textarea").fill('{"x-max-length": 9}')
    arguments.get_by_role("button", name="Alter").click()
    arguments.locator(".done").wait_for()
    assert api.get("queues", "/", "made here")["arguments"] == {"x-max-length": 9}
    danger = seen.open("Stop, purge, delete")
    danger.get_by_role("button", name="Stop enqueue").click()
    danger.get_by_role("button", name="Start enqueue").wait_for()
    assert api.get("queues", "/", "made here")["stopped"] == ["enqueue"]
    danger.get_by_role("button", name="Start enqueue").click()
    danger.get_by_role("button", name="Stop enqueue").wait_for()
    danger.get_by_role("button", name="Purge", exact=True).click()
    seen.confirm("Purge")
    danger.get_by_role("button", name="Delete", exact=True).click()
    dialog = seen.page.locator("dialog")
    dialog.get_by_text("1 bindings are removed: from amq.topic").wait_for()
    assert dialog.get_by_role("button", name="Delete").is_disabled(), "the name must be typed"
    seen.confirm("Delete", "made here")
    seen.page.wait_for_selector("h1:has-text('Queues')")
    api.refused(404, "GET", "queues", "/", "made here")
    api.close()


def test_where_a_message_would_go_and_a_policy_while_it_is_typed(seen: Watched, broker: Daemon) -> None:
    api = Api(broker.admin)
    api.post("bindings", "/", "e", "amq.topic", "q", "orders", status=201, body={"routing_key": "order.*"})
    seen.go("exchange/%2F/amq.topic")
    seen.page.get_by_label("Routing key").fill("order.new")
    seen.page.get_by_role("button", name="Where would it go?").click()
    seen.page.locator("[role=status]", has_text="To orders").wait_for()
    seen.page.get_by_label("Routing key").fill("nothing")
    seen.page.get_by_role("button", name="Where would it go?").click()
    seen.page.locator("[role=status]", has_text="To no queue").wait_for()
    seen.go("policies")
    form = seen.page.locator("form.fields")
    form.get_by_label("Name").fill("short")
    form.get_by_label("Pattern").fill("^ord")
    form.get_by_text("Matches 1 queues and 0 exchanges").wait_for()
    form.get_by_label("Definition").fill('{"max-length": 1000}')
    form.get_by_role("button", name="Set").click()
    form.locator(".done").wait_for()
    assert api.get("queues", "/", "orders")["policy"] == "short"
    row = seen.page.locator("tr", has_text="^ord")
    row.get_by_role("button", name="Delete").click()
    seen.confirm("Delete")
    assert api.get("queues", "/", "orders")["policy"] is None
    api.close()


def test_users_virtual_hosts_and_permissions(seen: Watched, broker: Daemon) -> None:
    api = Api(broker.admin)
    seen.go("vhosts")
    part = seen.open("New virtual host")
    part.get_by_label("Name").fill("made")
    part.get_by_role("button", name="Make").click()
    part.locator(".done").wait_for()
    seen.go("users")
    part = seen.open("New user")
    part.get_by_label("Name").fill("ann")
    part.get_by_label("Password").fill("secret")
    part.get_by_label("monitoring").check()
    part.get_by_role("button", name="Save").click()
    part.locator(".done").wait_for()
    assert api.get("users", "ann")["tags"] == ["monitoring"]
    api.put("users", "ann", status=204, tags="monitoring,auditor", password="secret")
    seen.go("user/ann")
    part = seen.open("Password and tags")
    assert part.get_by_label("monitoring").is_checked()
    part.get_by_label("New password").fill("other")
    part.get_by_role("button", name="Save").click()
    part.locator(".done").wait_for()
    assert api.get("users", "ann")["tags"] == ["monitoring", "auditor"], "a password changes no tags"
    part.get_by_label("management").check()
    part.get_by_role("button", name="Save").click()
    seen.page.locator("main p .badge", has_text="management").wait_for()
    ann = Api(broker.admin, "ann", "other")
    assert ann.get("whoami")["name"] == "ann", "tags change no password"
    ann.close()
    part = seen.open("Permissions")
    part.get_by_label("Virtual host").select_option("made")
    part.get_by_role("button", name="Set").click()
    part.locator("td", has_text=".*").first.wait_for()
    assert api.get("permissions", "made", "ann")["read"] == ".*"
    part.get_by_role("button", name="Clear").click()
    seen.confirm("Clear")
    seen.open("Delete").get_by_role("button", name="Delete", exact=True).last.click()
    seen.confirm("Delete", "ann")
    api.refused(404, "GET", "users", "ann")
    seen.go("vhosts")
    seen.page.locator("tr", has_text="made").get_by_role("button", name="Delete").click()
    seen.confirm("Delete", "made")
    api.refused(404, "GET", "vhosts", "made")
    api.close()


def test_the_life_of_a_message(seen: Watched) -> None:
    seen.go("journal")
    seen.page.get_by_label("message-id").fill("17")
    seen.page.get_by_role("button", name="Find").click()
    row = seen.page.locator("tr", has_text="enqueue").first
    row.wait_for()
    assert "POST /api/exchanges" in row.inner_text(), "the event has the operator's request"
    seen.page.reload()  # the address is enough to find the message again
    row.wait_for()
    assert "message=17" in seen.page.url


def test_a_connection_is_closed_with_a_reason(seen: Watched, broker: Daemon) -> None:
    with amqp(broker.address, "/") as channel:
        channel.basic_consume("orders", lambda *_: None)
        seen.go("connections")
        seen.page.locator("tbody a").first.click()
        seen.page.wait_for_selector("h1:has-text('Connection 127')")
        seen.open("Close").get_by_role("button", name="Close the connection").click()
        seen.page.locator("dialog").get_by_label("Reason").fill("too loud, “Zoë”")
        seen.confirm("Close the connection")
        with pytest.raises(pika.exceptions.ConnectionClosedByBroker, match="too loud, “Zoë”"):
            channel.connection.sleep(PATIENCE_S)


def test_definitions_show_what_an_import_would_change(seen: Watched, broker: Daemon, tmp_path: Path) -> None:
    api = Api(broker.admin)
    document = api.get("definitions")
    document["queues"].append(
        {"name": "imported", "vhost": "/", "durable": True, "auto_delete": False, "arguments": {}}
    )
    (tmp_path / "d.json").write_text(json.dumps(document))
    seen.go("definitions")
    seen.page.set_input_files("input[type=file]", tmp_path / "d.json")
    seen.page.locator("tr", has_text="imported").wait_for()
    assert seen.page.locator("tbody tr").count() == 1
    seen.page.get_by_role("button", name="Import", exact=True).click()
    seen.page.locator(".done", has_text="Imported").wait_for()
    assert api.get("queues", "/", "imported")["durable"]
    with seen.page.expect_download() as download:
        seen.page.get_by_role("button", name="Export").click()
    assert "imported" in Path(download.value.path()).read_text()
    api.close()


def test_a_refresh_keeps_what_is_typed_and_the_address_keeps_the_view(seen: Watched) -> None:
    seen.go("queues?name=ord&sort=messages_ready&reverse=true")
    assert seen.page.input_value("[data-search]") == "ord"
    assert seen.page.locator("th[aria-sort=descending]").inner_text().startswith("Ready")
    seen.go("queue/%2F/orders")
    part = seen.open("Publish a message")
    part.get_by_label("Body").fill("half a")
    seen.page.wait_for_timeout(6000)  # the view is refreshed every 5 seconds
    assert part.get_by_label("Body").input_value() == "half a"


def test_the_keyboard_reaches_everything(seen: Watched) -> None:
    seen.go("queues")
    seen.page.keyboard.press("/")
    assert seen.page.evaluate("document.activeElement.matches('[data-search]')")
    seen.go("queue/%2F/orders")
    seen.page.locator("h1").focus()
    reached = set()
    for _ in range(60):
        seen.page.keyboard.press("Tab")
        reached.add(seen.page.evaluate("document.activeElement.textContent.trim().slice(0, 40)"))
    for name in ("▸ Messages", "▸ Bindings", "▸ Stop, purge, delete"):
        assert name in reached, reached
    seen.open("Stop, purge, delete").get_by_role("button", name="Purge", exact=True).click()
    seen.page.locator("dialog").wait_for()
    seen.page.keyboard.press("Escape")
    seen.page.locator("dialog").wait_for(state="detached")


def test_a_user_who_only_monitors_is_told_what_is_refused(chromium: Any, broker: Daemon) -> None:
    api = Api(broker.admin)
    api.put("users", "seeing", password="secret", tags="monitoring")
    context = chromium.new_context()
    watched = Watched(context.new_page(), broker.admin)
    watched.log_in("seeing", "secret")
    watched.go("vhosts")
    part = watched.open("New virtual host")
    part.get_by_label("Name").fill("refused")
    part.get_by_role("button", name="Make").click()
    part.locator(".problem").wait_for()
    assert "administrator" in part.locator(".problem").inner_text()
    context.close()
    api.delete("users", "seeing")
    api.close()


def test_ten_thousand_queues_do_not_make_the_page_stutter(seen: Watched, broker: Daemon) -> None:
    api = Api(broker.admin)
    api.put("vhosts", "many")
    queues = [
        {
            "name": f"queue.{number:05}",
            "vhost": "many",
            "durable": True,
            "auto_delete": False,
            "arguments": {},
        }
        for number in range(10_000)
    ]
    api.post("definitions", status=204, body={"queues": queues})
    seen.go("queues?vhost=many&sort=messages&reverse=true")
    seen.page.get_by_text("10,000 of 10,000 queues").wait_for()
    assert seen.page.locator("tbody tr").count() == 50
    seen.page.locator("[data-search]").fill("queue.0999")
    seen.page.get_by_text("10 of 10,000 queues").wait_for()
    api.delete("vhosts", "many")
    api.close()


def test_screenshots_for_the_documents(seen: Watched, broker: Daemon) -> None:
    """Not made unless SCREENSHOTS names a folder: they would differ in every run."""
    folder = os.environ.get("SCREENSHOTS")
    for view in ("overview", "queue/%2F/orders"):
        seen.go(view)
        if folder:
            name = view.split("/")[0]
            seen.page.screenshot(path=Path(folder) / f"{name}.png", full_page=True)
