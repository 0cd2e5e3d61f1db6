"""Targets of dispatchers: the normal form of URLs and paths, and the prefixes that cover them."""

import pytest

from config.targets import AllowList, parse_command, parse_targets, parse_url


@pytest.mark.parametrize(
    ("text", "normal"),
    [
        ("http://example.org", "http://example.org/"),
        ("HTTPS://Example.ORG:443/Hooks?x=1", "https://example.org/Hooks?x=1"),
        ("http://example.org:8080/a/", "http://example.org:8080/a/"),
        ("http://[::1]:80/", "http://[::1]/"),
        ("http://[2001:DB8:0::1]/", "http://[2001:db8::1]/"),
        ("http://a_b.local/%C3%A9", "http://a_b.local/%C3%A9"),
        ("http://h/a;v=1/..b/...;x/100%25", "http://h/a;v=1/..b/...;x/100%25"),
    ],
)
def test_a_url_has_a_normal_form(text: str, normal: str) -> None:
    assert parse_url(text).text == normal


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("ftp://example.org/", "begins neither"),
        ("example.org/hook", "begins neither"),
        ("http:///x", "host is missing"),
        ("http://user@example.org/", "names a user"),
        ("http://example.org@evil.org/", "names a user"),
        ("http://example.org/#x", "fragment"),
        ("http://example.org/a/../b", "segment"),
        ("http://example.org/%2e%2E/b", "segment"),
        ("http://example.org/a/..;/b", "segment"),
        ("http://example.org/a/..;v=1/b", "segment"),
        ("http://example.org/a/.;/b", "segment"),
        ("http://example.org/a/%2e%2e;/b", "segment"),
        ("http://example.org/a/..%3b/b", "segment"),
        ("http://example.org/a/..%3Bx/b", "segment"),
        ("http://example.org/a/%252e%252e/b", "segment"),
        ("http://example.org/a/.%25252e%253b/b", "segment"),
        ("http://example.org/a/..%20/b", "segment"),
        ("http://example.org/a/..%09;x/b", "segment"),
        ("http://example.org/a/%C0%AE%C0%AE/b", "never UTF-8"),
        ("http://example.org/a%252fb", "encoded slash"),
        ("http://example.org/a%2fb", "encoded slash"),
        ("http://example.org/a%5Cb", "encoded slash"),
        ("http://example.org/a%00b", "encoded slash"),
        ("http://example.org\\@evil.org/", "backslashes"),
        ("http://example.org/a b", "spaces"),
        ("http://example.org/a\nb", "printable"),
        ("http://exämple.org/", "ASCII"),
        ("http://example.org:0/", "port"),
        ("http://example.org:99999/", "ort"),
        ("http://example.org/%zz", "percent-encoded"),
        ("http://exa%6dple.org/", "host"),
        ("http://[::1/", "IPv6"),
        ("http://" + "a" * 3000, "longer"),
        (7, "not a text"),
    ],
)
def test_a_url_with_two_meanings_is_refused(text: object, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        parse_url(text)


@pytest.mark.parametrize(
    ("allowed", "url", "covered"),
    [
        ("http://h", "http://h/anything?x", True),
        ("http://h/", "http://h/anything", True),
        ("http://h/hooks", "http://h/hooks", True),
        ("http://h/hooks", "http://h/hooks/", True),
        ("http://h/hooks", "http://h/hooks/a/b?c=d", True),
        ("http://h/hooks/", "http://h/hooks", True),
        ("http://h/hooks", "http://h/hooks2", False),
        ("http://h/hooks", "http://h/", False),
        ("http://h/hooks", "http://h//hooks", False),
        ("http://h/hooks", "https://h/hooks", False),
        ("http://h/hooks", "http://h:81/hooks", False),
        ("http://h:80/hooks", "http://h/hooks", True),
        ("http://h/hooks", "http://h.evil/hooks", False),
        ("http://h/hooks", "http://H/%68ooks/x", True),
        ("http://h/a", "http://h/A", False),
    ],
)
def test_a_prefix_covers_whole_segments_of_one_origin(allowed: str, url: str, covered: bool) -> None:
    assert AllowList([allowed]).allows_url(parse_url(url)) is covered


def test_the_query_of_a_url_is_not_shown() -> None:
    assert parse_url("http://h/a?token=x").shown == "http://h/a?***"
    assert parse_url("http://h/a").shown == "http://h/a"


def test_a_command_is_covered_by_its_whole_path() -> None:
    allowed = AllowList(["/usr/bin/import"])
    assert allowed.allows_command("/usr/bin/import")
    assert not allowed.allows_command("/usr/bin/import2")
    assert not allowed.allows_command("/usr/bin")


@pytest.mark.parametrize("path", ["bin/true", "/bin/../bin/true", "/bin//true", "/bin/", "/", "/a\0b", None])
def test_a_path_in_another_form_is_refused(path: object) -> None:
    with pytest.raises(ValueError, match="path"):
        parse_command(path)


@pytest.mark.parametrize("value", [[], (), "off", "OFF", ["off"], ""])
def test_without_targets_nothing_is_allowed(value: object) -> None:
    assert parse_targets(value) == ()
    assert not AllowList(())


def test_targets_come_as_one_text_or_as_a_list() -> None:
    both = ("http://h/a", "/bin/true")
    assert parse_targets("http://h/a, /bin/true") == both
    assert parse_targets(["http://h/a", "/bin/true"]) == both
    assert parse_targets(["http://h/a,/bin/true"]) == both


@pytest.mark.parametrize("value", ["http://h/?x=1", "h/a", "/bin/../true", 7, [7], "http://h/a,,/bin/true"])
def test_wrong_targets_are_refused(value: object) -> None:
    with pytest.raises(ValueError, match=r"query|begins neither|normal form|not a list"):
        parse_targets(value)
