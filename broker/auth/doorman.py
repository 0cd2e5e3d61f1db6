"""Checks passwords one after the other for each address, in threads that somebody else has.

A hash is slow on purpose. So that nobody can make others wait for theirs, one check is under way for an
address at a time; and as each one's turn comes, what the one before it has found out counts: hundreds of
clients that come back at once with one name and password cost one hash.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from typing import final

from broker.auth.authenticator import Authenticator
from broker.auth.backoff import BackOff
from broker.auth.passwords import Password, matches

Answer = Callable[[bool], None]


@final
class Check:
    """One password to be checked. `abandoned`: nobody waits for the answer any more."""

    __slots__ = ("abandoned", "address", "answer", "loopback", "password", "user")

    def __init__(self, user: str, password: str, address: str, loopback: bool, answer: Answer) -> None:
        self.user = user
        self.password = password
        self.address = address
        self.loopback = loopback
        self.answer = answer
        self.abandoned = False


@final
class Doorman:
    """Answers checks: at once where the password is remembered, else when their turn comes.

    `clock` gives seconds and never goes back; `later` calls after so many of them; `off_loop` runs its first
    argument in a thread and then, on the loop, its second with what that gave.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        backoff: BackOff,
        clock: Callable[[], float],
        later: Callable[[float, Callable[[], None]], object],
        off_loop: Callable[[Callable[[], bool], Answer], None],
    ) -> None:
        self._authenticator = authenticator
        self._backoff = backoff
        self._clock = clock
        self._later = later
        self._off_loop = off_loop
        self._lines: dict[str, deque[Check]] = {}
        self._busy: set[str] = set()

    def check(self, user: str, password: str, address: str, loopback: bool, answer: Answer) -> Check:
        """Have a password checked; `answer` is called once, perhaps before this returns."""
        check = Check(user, password, address, loopback, answer)
        if not self._answer_remembered(check):
            self._queue(check)
        return check

    def _answer_remembered(self, check: Check) -> bool:
        known = self._authenticator.remembered(check.user, check.password, check.loopback)
        if known is None:
            return False
        check.answer(known)
        return True

    def _queue(self, check: Check) -> None:
        self._lines.setdefault(check.address, deque()).append(check)
        self._next(check.address)

    def _next(self, address: str) -> None:
        """Begin the next check of an address, unless one is under way."""
        line = self._lines.get(address)
        while line and address not in self._busy:
            check = line.popleft()
            if check.abandoned or self._answer_remembered(check):
                continue
            wait = self._backoff.wait(address, check.user, self._clock())
            if wait > 0.0:
                self._later(wait, partial(self._queue, check))
                continue
            self._busy.add(address)
            kept = self._authenticator.kept(check.user)
            self._off_loop(partial(matches, kept, check.password), partial(self._checked, check, kept))
        if not line:
            self._lines.pop(address, None)

    def _checked(self, check: Check, kept: Password, right: bool) -> None:
        """Take the outcome of a check, unless it says nothing of the password that the user has now."""
        self._busy.discard(check.address)
        if self._authenticator.kept(check.user) != kept:
            self._lines.setdefault(check.address, deque()).appendleft(check)
            self._next(check.address)
            return
        if right:
            right = self._authenticator.passed(check.user, check.password, check.loopback)
        if right:
            self._backoff.succeeded(check.address, check.user)
        else:
            self._backoff.failed(check.address, check.user, self._clock())
        if not check.abandoned:
            check.answer(right)
        self._next(check.address)
