"""The management page: its files, which load nothing else, and the sessions of its users."""

import re
from pathlib import Path
from types import SimpleNamespace
from typing import cast

import pytest
from starlette.requests import Request

from broker.admin.api.management import Management
from broker.admin.api.requests import session_user
from broker.admin.page import FOLDER, POLICY, PREFIX, Page, wants_page
from broker.admin.sessions import (
    AGE_SECONDS,
    IDLE_SECONDS,
    SESSIONS_MAX,
    Sessions,
    cookie_name,
    cookie_of,
    is_of_page,
    token_of,
)
from broker.auth.passwords import Password
from broker.auth.users import Users
from tests.support.auth.broker_with_users import quick_password
from tests.support.core.topology import RecordingStore


class Clock:
    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        return self.now


class Bench:
    """Two users with passwords, and the sessions of the page."""

    def __init__(self) -> None:
        self.users = Users(RecordingStore())
        self.clock = Clock()
        self.sessions = Sessions(self.users, self.clock)
        for name in ("ann", "bob"):
            self.users.add(name, self.password(name), ["administrator"])

    def password(self, text: str) -> Password:
        return quick_password(text)


def test_a_session_belongs_to_its_user() -> None:
    bench = Bench()
    tokens = [bench.sessions.begin(name) for name in ("ann", "bob")]
    assert [bench.sessions.user_of(token) for token in tokens] == ["ann", "bob"]
    assert len(set(tokens)) == 2
    assert min(len(token) for token in tokens) >= 40
    assert bench.sessions.user_of("") is None
    assert bench.sessions.user_of(tokens[0][:-1]) is None
    bench.sessions.end(tokens[0])
    bench.sessions.end("unknown")
    assert [bench.sessions.user_of(token) for token in tokens] == [None, "bob"]


def test_a_session_ends_after_an_hour_without_requests_and_after_half_a_day_with_them() -> None:
    bench = Bench()
    idle, busy = bench.sessions.begin("ann"), bench.sessions.begin("bob")
    for _ in range(int(AGE_SECONDS // 1800)):
        bench.clock.now += 1800
        assert bench.sessions.user_of(busy) == "bob"
    assert bench.sessions.user_of(idle) is None
    bench.clock.now += 1
    assert bench.sessions.user_of(busy) is None
    again = bench.sessions.begin("ann")
    bench.clock.now += IDLE_SECONDS
    assert bench.sessions.user_of(again) == "ann"
    bench.clock.now += IDLE_SECONDS + 1
    assert bench.sessions.user_of(again) is None


def test_another_password_and_a_deletion_end_sessions() -> None:
    bench = Bench()
    ann, bob = bench.sessions.begin("ann"), bench.sessions.begin("bob")
    bench.users.put("ann", bench.password("other"), ["administrator"])
    bench.users.delete("bob")
    assert (bench.sessions.user_of(ann), bench.sessions.user_of(bob)) == (None, None)
    bench.users.add("bob", bench.password("bob"), ["administrator"])
    assert bench.sessions.user_of(bob) is None, "a user of the same name is another one"


def test_tags_may_change_within_a_session() -> None:
    bench = Bench()
    token = bench.sessions.begin("ann")
    bench.users.put("ann", None, ["monitoring"])
    assert bench.sessions.user_of(token) == "ann"


def test_the_oldest_session_makes_room() -> None:
    bench = Bench()
    tokens = [bench.sessions.begin("ann") for _ in range(SESSIONS_MAX + 1)]
    assert bench.sessions.user_of(tokens[0]) is None
    assert bench.sessions.user_of(tokens[1]) == "ann"


@pytest.mark.parametrize(
    ("header", "token"),
    [
        ("s=abc", "abc"),
        ("a=b; s=abc; c=d", "abc"),
        ("s=", ""),
        ("", ""),
        ("a=b", ""),
        ("\x00;;=", ""),
    ],
)
def test_the_cookie_of_a_request(header: str, token: str) -> None:
    assert token_of(header, "s") == token


def test_brokers_on_one_host_have_cookies_of_different_names() -> None:
    assert cookie_name("host:15672") == "amqpd-session-15672"
    assert cookie_name("[::1]:15673") == "amqpd-session-15673"
    assert cookie_name("host") == cookie_name("[::1]") == "amqpd-session"


def test_the_cookie_is_for_this_site_and_not_for_scripts() -> None:
    plain, secure = cookie_of("s", "abc", False), cookie_of("s", "abc", True)
    assert plain == "s=abc; Path=/; HttpOnly; SameSite=Strict"
    assert secure == f"{plain}; Secure"
    assert cookie_of("s", "", True).endswith("Max-Age=0")
    assert is_of_page([(b"host", b"h"), (b"x-amqpd-page", b"1")])
    assert not is_of_page([(b"cookie", b"x")])


@pytest.mark.parametrize(("host", "user"), [("127.0.0.1", "ann"), ("192.0.2.1", None)])
def test_a_user_for_this_host_only_has_no_session_elsewhere(host: str, user: str | None) -> None:
    bench = Bench()
    bench.users.put("ann", bench.password("ann"), ["administrator"], loopback_only=True)
    token = bench.sessions.begin("ann")
    headers = [(b"host", b"broker:15672"), (b"x-amqpd-page", b"1")]
    headers.append((b"cookie", f"amqpd-session-15672={token}".encode()))
    scope = {"type": "http", "path": "/api/whoami", "headers": headers, "client": (host, 1), "scheme": "http"}
    management = cast("Management", SimpleNamespace(sessions=bench.sessions, users=bench.users))
    assert session_user(Request(scope | {"query_string": b""}), management) == user


def test_browsers_want_the_page_and_programs_do_not() -> None:
    assert wants_page("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8")
    assert wants_page("application/json, TEXT/HTML;q=0.1")
    assert not wants_page("*/*")
    assert not wants_page("application/json")
    assert not wants_page("")


def test_files_are_found_and_nothing_beside_them() -> None:
    page = Page()
    index = page.find("/")
    assert index is not None
    assert index.kind == "text/html; charset=utf-8"
    assert page.find("/page/index.html") is index
    script = page.find("/page/views/queue.js")
    assert script is not None
    assert script.kind == "text/javascript; charset=utf-8"
    for path in ("../page.py", "views/../../page.py", "", "views", "nothing.js", "/etc/passwd", "views/"):
        assert page.find(PREFIX + path) is None, path


def test_the_page_loads_nothing_from_elsewhere() -> None:
    """The policy forbids it, and no file has an address of another host that is loaded."""
    assert "'unsafe" not in POLICY
    for place in FOLDER.rglob("*"):
        if place.suffix in (".js", ".css", ".html") and "vendor" not in place.parts:
            text = place.read_text(encoding="utf-8")
            assert re.findall(r"https?://(?!www\.w3\.org/)", text) == [], place
            assert re.findall(r"innerHTML|dangerously|\beval\(|new Function|\son[a-z]+=\"", text) == [], place


def test_each_module_that_is_imported_exists() -> None:
    for place in FOLDER.rglob("*.js"):
        for name in re.findall(r"from\s*\"(\.[^\"]+)\"", place.read_text(encoding="utf-8")):
            assert Path(place.parent, name).is_file(), (place, name)


def test_vendored_libraries_have_their_licences() -> None:
    vendor = FOLDER / "vendor"
    for name in ("preact", "htm", "uplot"):
        assert (vendor / f"LICENSE.{name}.txt").stat().st_size > 500
