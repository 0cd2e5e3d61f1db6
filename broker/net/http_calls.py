"""Calls of dispatchers by HTTP, with aiohttp, which the extra `dispatch` installs.

Redirects are not followed: only the URL that the setting `dispatch_allow` covers gets the messages. Neither
cookies nor proxies of the environment are used. Certificates are verified.
"""

from __future__ import annotations

import asyncio
import io
import ssl
import time
from importlib import import_module
from importlib.util import find_spec
from typing import Any, Final

from broker import __version__
from broker.dispatch.answers import FAILED, UNREACHED, Answer, answer_of_http
from broker.dispatch.definition import OTHER_ANSWER, Definition
from broker.dispatch.dispatcher import Call
from broker.dispatch.payload import HttpRequest
from broker.net.tls import open_regular

LIBRARY: Final = "aiohttp"
EXTRA: Final = "dispatch"
ANSWER_BYTES_MAX: Final = 65_536  # a connection with a longer answer is closed
TEXT_BYTES_MAX: Final = 2000  # the beginning of an answer is kept
STREAMED_BYTES_MIN: Final = 1_048_576  # a longer body is written in parts
IDLE_SECONDS: Final = 15.0  # how long an idle connection is kept
URLS_MAX: Final = 1000
RESOLVED_SECONDS: Final = 10  # how long an address is used without another look-up


def missing_library() -> str:
    """Return why the broker cannot call by HTTP; "" if it can."""
    if find_spec(LIBRARY) is not None:
        return ""
    return f"calls by HTTP need {LIBRARY}: install amqpd with the extra {EXTRA}, pip install 'amqpd[{EXTRA}]'"


class HttpCalls:
    """The calls by HTTP of all dispatchers. Dispatchers with the same authorities share connections."""

    def __init__(self) -> None:
        self._library: asyncio.Task[Any] | None = None
        self._sessions: dict[str, Any] = {}
        self._urls: dict[str, Any] = {}

    async def call(self, call: Call) -> Answer:
        """Send the request of a call, and return its answer."""
        assert call.request is not None, "the dispatcher has made the request"
        return await self.post(call.definition, call.request)

    async def post(self, definition: Definition, request: HttpRequest) -> Answer:
        """Send a request to the target of a definition, and return its answer."""
        assert definition.url is not None, "a call by HTTP has a URL"
        aiohttp = await self._load()
        try:
            session = self._session(aiohttp, definition.ca)
        except OSError as error:
            return Answer(UNREACHED, OTHER_ANSWER, f"'ca' {definition.ca}: {error.strerror or error}")
        body: Any = request.body
        if len(body) >= STREAMED_BYTES_MIN:
            body = io.BytesIO(body)
        url = self._url(definition.url.text)
        try:
            async with session.post(url, data=body, headers=request.headers, allow_redirects=False) as answer:
                text = await _read(answer)
                retry_after = answer.headers.get("Retry-After")
                return answer_of_http(answer.status, retry_after, text, time.time_ns() // 1_000_000)
        except aiohttp.ClientConnectorError as error:
            return Answer(UNREACHED, OTHER_ANSWER, f"{definition.url.text}: {error}")
        except (aiohttp.ClientError, OSError, ValueError) as error:
            return Answer(FAILED, OTHER_ANSWER, f"{definition.url.text}: {error or type(error).__name__}")

    async def close(self) -> None:
        """Close all connections."""
        sessions, self._sessions = self._sessions, {}
        for session in sessions.values():
            await session.close()

    async def _load(self) -> Any:
        """Return the library, which is imported in a thread by the first call."""
        if self._library is None:
            self._library = asyncio.create_task(asyncio.to_thread(import_module, LIBRARY))
        return await asyncio.shield(self._library)

    def _url(self, text: str) -> Any:
        """Return a URL as the library takes it, without another normal form."""
        url = self._urls.get(text)
        if url is None:
            if len(self._urls) >= URLS_MAX:
                self._urls.clear()
            url = self._urls[text] = import_module("yarl").URL(text, encoded=True)
        return url

    def _session(self, aiohttp: Any, ca: str) -> Any:
        """Return the session for a file of authorities; "": those of the system. Raises OSError."""
        session = self._sessions.get(ca)
        if session is None:
            if ca:
                open_regular(ca).close()
            connector = aiohttp.TCPConnector(
                limit=0,  # each dispatcher limits its calls
                ssl=ssl.create_default_context(cafile=ca or None),
                keepalive_timeout=IDLE_SECONDS,
                ttl_dns_cache=RESOLVED_SECONDS,
            )
            session = self._sessions[ca] = aiohttp.ClientSession(
                connector=connector,
                cookie_jar=aiohttp.DummyCookieJar(),
                timeout=aiohttp.ClientTimeout(total=None, sock_connect=None),  # the dispatcher has a limit
                headers={"User-Agent": f"amqpd/{__version__}", "Accept": "*/*"},
                skip_auto_headers=("Accept-Encoding",),
                auto_decompress=False,
            )
        return session


async def _read(answer: Any) -> str:
    """Read the body of an answer, and return its beginning as text.

    The connection is closed if the body is long, because reading it to the end could take for ever.
    """
    start, size = b"", 0
    async for piece in answer.content.iter_any():
        size += len(piece)
        start = (start + piece)[:TEXT_BYTES_MAX]
        if size > ANSWER_BYTES_MAX:
            answer.close()
            break
    return start.decode("utf-8", "replace").strip()
