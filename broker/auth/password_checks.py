"""Check passwords network by network, in threads that the caller provides.

A hash is slow on purpose. So that no peer delays others, a network has a single running check, and the user
names of the network are served round-robin. The result of a check counts for all waiting log-ins with
the same name and password: hundreds of clients that reconnect at once cost a single hash.
"""

from __future__ import annotations

from collections import OrderedDict, deque
from collections.abc import Callable
from functools import partial
from typing import Final, Protocol, final

from broker.auth.authenticator import Authenticator
from broker.auth.backoff import BackOff, network
from broker.auth.passwords import NO_PASSWORD, Password, matches, refuse

GUESSES_MAX: Final = 64  # different passwords that wait in one network
DURATIONS_MAX: Final = 32  # durations of checks that are remembered

Answer = Callable[[bool], None]


class Timer(Protocol):
    """A scheduled call."""

    def cancel(self) -> object:
        """Cancel the call."""


CallLater = Callable[[float, Callable[[], None]], Timer | None]

LineKey = tuple[str, str | None]
"""A network and a line of the network.

The line "" is for users that exist. Each name for which no password is right has its own line. None: the line
of all such names until a check has been timed.
"""


@final
class Check:
    """A password check. `abandon` the check when its answer is no longer needed.

    `was_dropped`: it was refused without a look at the password, because too many guesses waited.
    """

    __slots__ = (
        "_leave",
        "address",
        "answer",
        "line_key",
        "loopback",
        "password",
        "timer",
        "user",
        "was_dropped",
    )

    def __init__(self, user: str, password: str, address: str, loopback: bool, answer: Answer) -> None:
        self.user = user
        self.password = password
        self.address = address
        self.line_key: LineKey = ("", "")  # the line of the check
        self.loopback = loopback
        self.answer: Answer | None = answer
        self.timer: Timer | None = None
        self.was_dropped = False
        self._leave: Callable[[Check], None] | None = None

    def set_leave(self, leave: Callable[[Check], None]) -> None:
        """Call `leave` if the check is abandoned."""
        self._leave = leave

    def abandon(self) -> None:
        """Forget the check: its answer is no longer needed."""
        self.answer = None
        leave, self._leave = self._leave, None
        if leave is not None:
            leave(self)
        timer, self.timer = self.timer, None
        if timer is not None:
            timer.cancel()

    def end(self, right: bool) -> None:
        """Answer, unless the check was abandoned."""
        answer, self.answer = self.answer, None
        self._leave = self.timer = None
        if answer is not None:
            answer(right)


Guesses = dict[str, list[Check]]
"""The checks of a user by password, in the order of arrival."""


@final
class _Line:
    """The checks of a network, run one at a time.

    `ready`: the waiting checks by user, served round-robin. `parked`: the checks of users that are delayed
    after failures.
    """

    __slots__ = ("began", "parked", "ready", "running")

    def __init__(self) -> None:
        self.began = 0.0  # when the running check began
        self.ready: OrderedDict[str, Guesses] = OrderedDict()
        self.parked: dict[str, Guesses] = {}
        self.running: list[Check] | None = None

    def guesses(self, user: str) -> Guesses:
        """Return the guesses of a user; a user without any is added to `ready`."""
        parked = self.parked.get(user)
        return self.ready.setdefault(user, {}) if parked is None else parked

    def count(self) -> int:
        """Return the number of guesses."""
        return sum(map(len, self.ready.values())) + sum(map(len, self.parked.values()))

    def drop_one(self, spare: bool) -> list[Check]:
        """Remove the newest guess of the user with the most guesses. `spare`: keep a user's only guess."""
        among = [*self.ready.items(), *self.parked.items()]
        user, guesses = max(among, key=lambda each: len(each[1]))
        if spare and len(guesses) == 1:
            return []
        _, checks = guesses.popitem()
        self.drop_empty(user)
        return checks

    def drop_empty(self, user: str) -> None:
        """Forget a user without waiting checks."""
        for users in (self.ready, self.parked):
            if user in users and not users[user]:
                del users[user]


@final
class PasswordChecks:
    """Password checks: answered at once where the password is remembered, else by a hash in a thread.

    `clock` returns seconds and never goes back. `call_later` calls a function after a number of seconds.
    `run_in_thread` runs its first argument in a thread, and then its second argument with the result on the
    loop.

    A network has a line for the users that exist. A name for which no password is right has a line of its
    own. A check in such a line takes as long as another check took, and computes nothing. So any number of
    invented names neither delays a user that exists nor shows which users exist. Until the first check has
    been timed, all such names share a line in which hashes are computed. After many wrong names from a
    network, refusals are delayed and right passwords are not.

    When too many guesses wait, the newest guess of the user with the most guesses is refused, but never the
    only guess of a user that exists.
    """

    def __init__(
        self,
        authenticator: Authenticator,
        backoff: BackOff,
        clock: Callable[[], float],
        call_later: CallLater,
        run_in_thread: Callable[[Callable[[], bool], Answer], None],
    ) -> None:
        self._authenticator = authenticator
        self._backoff = backoff
        self._clock = clock
        self._call_later = call_later
        self._run_in_thread = run_in_thread
        self._lines: dict[LineKey, _Line] = {}
        self._durations: deque[float] = deque(maxlen=DURATIONS_MAX)

    def check(self, user: str, password: str, address: str, loopback: bool, answer: Answer) -> Check:
        """Check a password; `answer` is called once, perhaps before this returns."""
        check = Check(user, password, address, loopback, answer)
        if not self._answer_remembered(check):
            self._queue(check)
        return check

    def _queue(self, check: Check) -> None:
        name: str | None = ""
        if self._authenticator.stored_password(check.user) == NO_PASSWORD:
            name = check.user if self._durations else None
        check.line_key = (network(check.address), name)
        line = self._lines.setdefault(check.line_key, _Line())
        running = line.running
        if running is not None and (running[0].user, running[0].password) == (check.user, check.password):
            running.append(check)
            return
        line.guesses(check.user).setdefault(check.password, []).append(check)
        check.set_leave(self._leave)
        if line.count() > GUESSES_MAX:
            for dropped in line.drop_one(spare=name is not None):
                dropped.was_dropped = True
                dropped.end(False)
        self._next(check.line_key)

    def _leave(self, check: Check) -> None:
        """Remove a waiting check."""
        line = self._lines[check.line_key]
        guesses = line.guesses(check.user)
        checks = guesses[check.password]
        checks.remove(check)
        if not checks:
            del guesses[check.password]
            line.drop_empty(check.user)
            self._next(check.line_key)

    def _answer_remembered(self, check: Check) -> bool:
        if not self._authenticator.is_remembered(check.user, check.password, check.loopback):
            return False
        check.end(True)
        return True

    def _next(self, line_key: LineKey) -> None:
        """Begin the next check of a network, unless a check is running."""
        line = self._lines.get(line_key)
        if line is None:
            return
        while line.ready and line.running is None:
            user, guesses = line.ready.popitem(last=False)
            password, checks = next(iter(guesses.items()))
            checks[:] = [check for check in checks if not self._answer_remembered(check)]
            if not checks:
                del guesses[password]
                if guesses:
                    line.ready[user] = guesses
                continue
            wait = self._backoff.login_delay(checks[0].address, user, self._clock())
            if wait > 0.0:
                line.parked[user] = guesses
                self._call_later(wait, partial(self._unpark, line_key, user))
                continue
            del guesses[password]
            if guesses:
                line.ready[user] = guesses
            line.running, line.began = checks, self._clock()
            for check in checks:
                check.set_leave(_ignore_abandon)
            kept = self._authenticator.stored_password(user)
            checked = partial(self._checked, line_key, line, kept)
            if line_key[1]:
                self._durations.rotate()
                self._call_later(self._durations[0], partial(checked, False))
            else:
                outside = self._authenticator.is_outside_loopback(user, checks[0].loopback)
                self._run_in_thread(partial(refuse if outside else matches, kept, password), checked)
        if not line.ready and not line.parked and line.running is None:
            self._lines.pop(line_key, None)

    def _unpark(self, line_key: LineKey, user: str) -> None:
        line = self._lines.get(line_key)
        if line is not None and user in line.parked:
            line.ready[user] = line.parked.pop(user)
            self._next(line_key)

    def _checked(self, line_key: LineKey, line: _Line, kept: Password, right: bool) -> None:
        """Take the result of a check; if the user's password has changed meanwhile, check again."""
        checks, line.running = line.running, None
        assert checks is not None
        first = checks[0]
        if self._authenticator.stored_password(first.user) != kept:
            for check in checks:
                if check.answer is not None:
                    self._queue(check)
            self._next(line_key)
            return
        if not line_key[1]:
            self._durations.append(self._clock() - line.began)
        if right:
            for check in checks:
                if self._authenticator.remember(check.user, check.password, check.loopback):
                    self._backoff.forget_failures(check.address, check.user)
                    check.end(True)
                else:
                    self._refuse([check])
        else:
            self._refuse(checks)
        self._next(line_key)

    def _refuse(self, checks: list[Check]) -> None:
        """Count a single failure for all `checks`, and refuse them.

        The refusal is delayed if many names have failed from this network.
        """
        first, now = checks[0], self._clock()
        hold = self._backoff.refusal_delay(first.address, now)
        self._backoff.count_failure(first.address, first.user, now)
        for check in checks:
            if hold > 0.0 and check.answer is not None:
                check.timer = self._call_later(hold, partial(check.end, False))
            else:
                check.end(False)


def _ignore_abandon(check: Check) -> None:
    """Do nothing: a check that runs is not stopped."""
