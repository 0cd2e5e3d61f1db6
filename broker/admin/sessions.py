"""Sessions of the management page: who has logged in with the form, for how long.

A session counts only for requests of the page itself: see `is_of_page`. It ends when its user logs out, is
deleted or gets another password, after IDLE_SECONDS without a request, and after AGE_SECONDS in any case.
"""

import secrets
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable
from http.cookies import CookieError, SimpleCookie
from typing import Final

from broker.auth.passwords import Password
from broker.auth.users import Users

PAGE_HEADER: Final = "x-amqpd-page"
"""The header of requests of the page. Pages of other origins cannot send it: the broker grants no CORS."""

IDLE_SECONDS: Final = 3600.0
AGE_SECONDS: Final = 12 * 3600.0
SESSIONS_MAX: Final = 1000


def is_of_page(headers: Iterable[tuple[bytes, bytes]]) -> bool:
    """Whether the page itself has sent a request. `headers` have lower-case names.

    Browsers send no `Origin` with a GET to the same host, so the page has a header of its own. An `Origin` of
    another host was refused before, if the request may change something.
    """
    return any(name == PAGE_HEADER.encode() for name, _ in headers)


def cookie_name(address: str) -> str:
    """Return the name of the cookie of the page at HOST:PORT.

    Browsers send cookies to all ports of a host. So brokers on one host have cookies of different names.
    """
    port = address.rpartition(":")[2]
    return f"amqpd-session-{port}" if port.isascii() and port.isdigit() else "amqpd-session"


def token_of(cookies: str, name: str) -> str:
    """Return the token that the header `Cookie` has under a name; "" if there is none."""
    try:
        found = SimpleCookie(cookies).get(name)
    except CookieError:
        return ""
    return "" if found is None else found.value


def cookie_of(name: str, token: str, is_secure: bool) -> str:
    """Return the value of `Set-Cookie` for a token; "" makes the browser forget its token."""
    age = "" if token else "; Max-Age=0"
    secure = "; Secure" if is_secure else ""
    return f"{name}={token}; Path=/; HttpOnly; SameSite=Strict{secure}{age}"


class Session:
    """A log-in: the user and the password that it was made with, and its times in seconds."""

    def __init__(self, user: str, password: Password | None, now: float) -> None:
        self.user = user
        self.password = password
        self.began = now
        self.used = now


class Sessions:
    """The sessions of a daemon by their tokens. The oldest one ends if there are more than SESSIONS_MAX."""

    def __init__(self, users: Users, clock: Callable[[], float] = time.monotonic) -> None:
        self._users = users
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()

    def begin(self, user: str) -> str:
        """Begin a session of a user whose password was right, and return its token."""
        token = secrets.token_urlsafe(32)
        self._sessions[token] = Session(user, self._password(user), self._clock())
        if len(self._sessions) > SESSIONS_MAX:
            self._sessions.popitem(last=False)
        return token

    def user_of(self, token: str) -> str | None:
        """Return the user of a session, which counts as used now; None if there is no such session."""
        session = self._sessions.get(token)
        if session is None:
            return None
        now = self._clock()
        password = self._password(session.user)
        if (
            now - session.used > IDLE_SECONDS
            or now - session.began > AGE_SECONDS
            or self._users.get(session.user) is None
            or password is not session.password
        ):
            self.end(token)
            return None
        session.used = now
        return session.user

    def end(self, token: str) -> None:
        """End a session; nothing happens if there is none."""
        self._sessions.pop(token, None)

    def _password(self, user: str) -> Password | None:
        found = self._users.get(user)
        return None if found is None else found.password
