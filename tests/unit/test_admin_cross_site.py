"""Web pages that may change something: requests of browsers and of others."""

import pytest

from broker.admin.app import changes, foreign_site

HOST = (b"host", b"broker.example:15672")


@pytest.mark.parametrize(
    ("headers", "foreign"),
    [
        ([], ""),
        ([(b"origin", b"http://broker.example:15672"), (b"sec-fetch-site", b"same-origin")], ""),
        ([(b"origin", b"https://broker.example:15672")], ""),  # TLS may end at a proxy
        ([(b"origin", b"HTTP://Broker.Example:15672")], ""),
        ([(b"sec-fetch-site", b"none")], ""),
        ([(b"origin", b"http://evil.example"), (b"sec-fetch-site", b"cross-site")], "http://evil.example"),
        ([(b"origin", b"http://evil.example:15672")], "http://evil.example:15672"),
        ([(b"origin", b"http://broker.example")], "http://broker.example"),
        ([(b"origin", b"http://broker.example:1")], "http://broker.example:1"),
        ([(b"origin", b"null")], "null"),
        ([(b"origin", b"")], ""),
        ([(b"origin", b""), (b"origin", b"http://evil.example")], "http://evil.example"),
        ([(b"origin", b""), (b"sec-fetch-site", b"cross-site")], "a cross-site origin"),
        ([(b"origin", b"http://[::1")], "http://[::1"),
        ([(b"origin", b"http://broker.example:15672@evil.example")], "http://broker.example:15672@evil.example"),
        ([(b"origin", b"http://broker.example:15672"), (b"origin", b"http://evil.example")], "http://evil.example"),
        ([(b"sec-fetch-site", b"cross-site")], "a cross-site origin"),
        ([(b"sec-fetch-site", b"same-site")], "a same-site origin"),
        (
            [(b"origin", b"http://broker.example:15672"), (b"sec-fetch-site", b"cross-site")],
            "a cross-site origin",
        ),
    ],
)  # fmt: skip
def test_for_whose_page_a_request_is(headers: list[tuple[bytes, bytes]], foreign: str) -> None:
    assert foreign_site([HOST, *headers], ()) == foreign


@pytest.mark.parametrize(
    ("origin", "host"),
    [
        (b"http://h", b"h"),
        (b"http://h", b"h:80"),
        (b"http://h:80", b"h"),
        (b"https://h", b"h:443"),
        (b"https://h:443", b"h"),
        (b"http://[::1]:1", b"[::1]:1"),
        (b"http://[::1]", b"[::1]"),
    ],
)
def test_the_port_that_a_scheme_implies(origin: bytes, host: bytes) -> None:
    assert foreign_site([(b"host", host), (b"origin", origin)], ()) == ""


def test_origins_that_are_welcome() -> None:
    there = [HOST, (b"origin", b"https://console.example"), (b"sec-fetch-site", b"cross-site")]
    assert foreign_site(there, ("https://console.example",)) == ""
    assert foreign_site(there, ("any",)) == ""
    assert foreign_site(there, ("https://other.example",)) == "https://console.example"
    assert foreign_site([(b"origin", b"http://h")], ()) == "http://h", "a request without Host"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH", "DELETE", "get", "TRACE", "X"])
def test_what_may_change_something(method: str) -> None:
    assert changes(method, "/api/queues")


def test_what_changes_nothing() -> None:
    assert not any(changes(method, "/api/queues") for method in ("GET", "HEAD", "OPTIONS"))
    assert changes("GET", "/api/aliveness-test/%2F")
