"""Whose password is checked when: one at a time for an address, and not before a guesser has waited."""

from collections.abc import Callable

import pytest

from broker.auth.authenticator import Authenticator
from broker.auth.backoff import FREE_FAILURES, BackOff
from broker.auth.doorman import Answer, Doorman
from broker.auth.users import Users
from broker.core.ports import MessageStore
from tests.people import quick

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Threads:
    """Checks that are under way until a test lets them end, a clock, and calls that are due later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.running: list[tuple[Callable[[], bool], Answer]] = []
        self.later: list[tuple[float, Callable[[], None]]] = []
        self.checked = 0

    def run(self, work: Callable[[], bool], answer: Answer) -> None:
        self.running.append((work, answer))

    def finish(self) -> None:
        """Let everything end that is under way, also what begins meanwhile."""
        while self.running:
            work, answer = self.running.pop(0)
            self.checked += 1
            answer(work())

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append((self.now + seconds, call))

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [call for when, call in self.later if when <= self.now]
        self.later = [item for item in self.later if item[0] > self.now]
        for call in due:
            call()


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def users() -> Users:
    users = Users(MessageStore())
    for name in ("ann", "bob"):
        users.add(name, quick(name))
    return users


@pytest.fixture
def doorman(users: Users, threads: Threads) -> Doorman:
    return Doorman(Authenticator(users), BackOff(), lambda: threads.now, threads.call_later, threads.run)


def test_one_check_for_a_crowd_that_comes_back(doorman: Doorman, threads: Threads) -> None:
    answers: list[bool] = []
    for _ in range(500):
        doorman.check("ann", "ann", HERE, True, answers.append)
    assert len(threads.running) == 1
    threads.finish()
    assert answers == [True] * 500
    assert threads.checked == 1
    doorman.check("ann", "ann", HERE, True, answers.append)
    assert len(answers) == 501


def test_an_address_has_one_check_at_a_time_and_others_do_not_wait_for_it(
    doorman: Doorman, threads: Threads
) -> None:
    answers: list[bool] = []
    for number in range(20):
        doorman.check("ann", f"guess {number}", HERE, True, lambda right: None)
    doorman.check("ann", "ann", THERE, True, answers.append)
    assert len(threads.running) == 2
    work, answer = threads.running.pop()
    answer(work())
    assert answers == [True]


def test_guesses_wait_longer_and_longer(doorman: Doorman, threads: Threads) -> None:
    wrong: list[bool] = []
    for number in range(100):
        doorman.check("ann", f"guess {number}", HERE, True, wrong.append)
    threads.finish()
    assert wrong == [False] * FREE_FAILURES
    threads.pass_time(0.3)
    threads.finish()
    assert len(wrong) == FREE_FAILURES + 1
    threads.pass_time(0.3)
    threads.finish()
    assert len(wrong) == FREE_FAILURES + 1  # half a second now
    threads.pass_time(0.3)
    threads.finish()
    assert len(wrong) == FREE_FAILURES + 2


def test_a_colleague_does_not_wait_and_neither_does_a_known_password(
    doorman: Doorman, threads: Threads
) -> None:
    answers: list[bool] = []
    doorman.check("ann", "ann", HERE, True, answers.append)
    threads.finish()
    for number in range(100):
        doorman.check("ann", f"guess {number}", HERE, True, lambda right: None)
    threads.finish()
    doorman.check("bob", "bob", HERE, True, answers.append)
    threads.finish()
    doorman.check("ann", "ann", HERE, True, answers.append)
    assert answers == [True] * 3


def test_the_right_password_after_wrong_ones_waits_its_turn(doorman: Doorman, threads: Threads) -> None:
    answers: list[bool] = []
    for password in ("a", "b", "c"):
        doorman.check("ann", password, HERE, True, answers.append)
    threads.finish()
    doorman.check("ann", "ann", HERE, True, answers.append)
    threads.finish()
    assert answers == [False] * 3
    threads.pass_time(0.3)
    threads.finish()
    assert answers == [False] * 3 + [True]


def test_nothing_is_checked_for_a_peer_that_has_left(doorman: Doorman, threads: Threads) -> None:
    answers: list[bool] = []
    checks = [doorman.check("ann", f"guess {n}", HERE, True, answers.append) for n in range(10)]
    for check in checks:
        check.abandoned = True
    threads.finish()
    assert (threads.checked, answers) == (1, [])
    assert (doorman._lines, doorman._busy) == ({}, set())


def test_nothing_is_kept_of_whoever_has_been_answered(doorman: Doorman, threads: Threads) -> None:
    for number in range(50):
        doorman.check("ann", "wrong", f"10.0.1.{number}", True, lambda right: None)
    threads.finish()
    assert (doorman._lines, doorman._busy) == ({}, set())


@pytest.mark.parametrize("password", ["ann", "new"])
def test_a_password_that_changes_while_it_is_checked(
    users: Users, doorman: Doorman, threads: Threads, password: str
) -> None:
    answers: list[bool] = []
    doorman.check("ann", password, HERE, True, answers.append)
    work, answer = threads.running.pop()
    outcome = work()
    users.put("ann", quick("new"))
    answer(outcome)
    assert answers == [], "it was another one that has been checked"
    threads.finish()
    assert answers == [password == "new"]
    doorman.check("ann", password, HERE, True, answers.append)
    assert len(answers) == (2 if password == "new" else 1), "only the right one is remembered"


@pytest.mark.parametrize(
    ("change", "expected"),
    [
        (lambda users: users.delete("ann"), False),
        (lambda users: users.put("ann", None, (), loopback_only=True), False),
        (lambda users: users.put("ann", None, ("monitoring",)), True),
    ],
    ids=["deleted", "loopback only", "tagged"],
)
def test_a_user_that_changes_while_the_password_is_checked(
    users: Users, doorman: Doorman, threads: Threads, change: Callable[[Users], object], expected: bool
) -> None:
    answers: list[bool] = []
    doorman.check("ann", "ann", HERE, False, answers.append)
    work, answer = threads.running.pop()
    outcome = work()
    change(users)
    answer(outcome)
    threads.finish()
    assert answers == [expected]
    assert (doorman._lines, doorman._busy) == ({}, set())
