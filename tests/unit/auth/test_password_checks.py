"""The order of password checks: a single check for each address, and a guesser waits before its check."""

import base64
import hashlib
from collections.abc import Callable

import pytest

from broker.auth.authenticator import Authenticator
from broker.auth.backoff import FREE_FAILURES, FREE_NAMES, BackOff
from broker.auth.password_checks import GUESSES_MAX, Answer, PasswordChecks
from broker.auth.passwords import import_hash
from broker.auth.users import Users
from broker.core.ports import MessageStore
from tests.support.auth.broker_with_users import quick_password
from tests.support.effort import hashes_made

HERE, THERE = "10.0.0.1", "10.0.0.2"


class Due:
    """A call that is due later."""

    def __init__(self, when: float, call: Callable[[], None]) -> None:
        self.when = when
        self.call = call
        self.cancelled = False

    def cancel(self) -> None:
        self.cancelled = True


class Threads:
    """Checks that are under way until a test lets them end, a clock, and calls that are due later."""

    def __init__(self) -> None:
        self.now = 100.0
        self.running: list[tuple[Callable[[], bool], Answer]] = []
        self.later: list[Due] = []
        self.checked = 0

    def run(self, work: Callable[[], bool], answer: Answer) -> None:
        self.running.append((work, answer))

    def finish(self) -> None:
        """Finish all running checks, also checks that begin meanwhile."""
        while self.running:
            work, answer = self.running.pop(0)
            self.checked += 1
            answer(work())

    def call_later(self, seconds: float, call: Callable[[], None]) -> Due:
        self.later.append(Due(self.now + seconds, call))
        return self.later[-1]

    @property
    def waiting(self) -> int:
        """The count of calls that are due."""
        return sum(not each.cancelled for each in self.later)

    def pass_time(self, seconds: float) -> None:
        self.now += seconds
        due = [each for each in self.later if each.when <= self.now]
        self.later = [each for each in self.later if each.when > self.now]
        for each in due:
            if not each.cancelled:
                each.call()


@pytest.fixture
def threads() -> Threads:
    return Threads()


@pytest.fixture
def users() -> Users:
    users = Users(MessageStore())
    for name in ("ann", "bob"):
        users.add(name, quick_password(name))
    return users


@pytest.fixture
def password_checks(users: Users, threads: Threads) -> PasswordChecks:
    return PasswordChecks(
        Authenticator(users), BackOff(), lambda: threads.now, threads.call_later, threads.run
    )


def test_a_single_check_serves_many_equal_log_ins(password_checks: PasswordChecks, threads: Threads) -> None:
    answers: list[bool] = []
    for _ in range(500):
        password_checks.check("ann", "ann", HERE, True, answers.append)
    assert len(threads.running) == 1
    threads.finish()
    assert answers == [True] * 500
    assert threads.checked == 1
    password_checks.check("ann", "ann", HERE, True, answers.append)
    assert len(answers) == 501


def test_an_address_has_one_check_at_a_time_and_others_do_not_wait_for_it(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    answers: list[bool] = []
    for number in range(20):
        password_checks.check("ann", f"guess {number}", HERE, True, lambda right: None)
    password_checks.check("ann", "ann", THERE, True, answers.append)
    assert len(threads.running) == 2
    work, answer = threads.running.pop()
    answer(work())
    assert answers == [True]


def test_guesses_wait_longer_and_longer(password_checks: PasswordChecks, threads: Threads) -> None:
    wrong: list[bool] = []
    for number in range(GUESSES_MAX):
        password_checks.check("ann", f"guess {number}", HERE, True, wrong.append)
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
    password_checks: PasswordChecks, threads: Threads
) -> None:
    answers: list[bool] = []
    password_checks.check("ann", "ann", HERE, True, answers.append)
    threads.finish()
    for number in range(100):
        password_checks.check("ann", f"guess {number}", HERE, True, lambda right: None)
    threads.finish()
    password_checks.check("bob", "bob", HERE, True, answers.append)
    threads.finish()
    password_checks.check("ann", "ann", HERE, True, answers.append)
    assert answers == [True] * 3


def test_the_right_password_after_wrong_ones_waits_its_turn(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    answers: list[bool] = []
    for password in ("a", "b", "c"):
        password_checks.check("ann", password, HERE, True, answers.append)
    threads.finish()
    password_checks.check("ann", "ann", HERE, True, answers.append)
    threads.finish()
    assert answers == [False] * 3
    threads.pass_time(0.3)
    threads.finish()
    assert answers == [False] * 3 + [True]


def test_nothing_is_checked_for_a_peer_that_has_left(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    answers: list[bool] = []
    checks = [password_checks.check("ann", f"guess {n}", HERE, True, answers.append) for n in range(10)]
    for check in checks:
        check.abandon()
    threads.finish()
    assert (threads.checked, answers) == (1, [])
    assert password_checks._lines == {}


def test_an_answered_check_leaves_no_line(password_checks: PasswordChecks, threads: Threads) -> None:
    for number in range(50):
        password_checks.check("ann", "wrong", f"10.0.1.{number}", True, lambda right: None)
    threads.finish()
    assert password_checks._lines == {}


@pytest.mark.parametrize("password", ["ann", "new"])
def test_a_password_that_changes_while_it_is_checked(
    users: Users, password_checks: PasswordChecks, threads: Threads, password: str
) -> None:
    answers: list[bool] = []
    password_checks.check("ann", password, HERE, True, answers.append)
    work, answer = threads.running.pop()
    outcome = work()
    users.put("ann", quick_password("new"))
    answer(outcome)
    assert answers == [], "it was another one that has been checked"
    threads.finish()
    assert answers == [password == "new"]
    password_checks.check("ann", password, HERE, True, answers.append)
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
    users: Users,
    password_checks: PasswordChecks,
    threads: Threads,
    change: Callable[[Users], object],
    expected: bool,
) -> None:
    answers: list[bool] = []
    password_checks.check("ann", "ann", HERE, False, answers.append)
    work, answer = threads.running.pop()
    outcome = work()
    change(users)
    answer(outcome)
    threads.finish()
    assert answers == [expected]
    assert password_checks._lines == {}


def learn_span(password_checks: PasswordChecks, threads: Threads, seconds: float = 0.05) -> None:
    """Run a real check that takes so long."""
    password_checks.check("bob", "bob", THERE, True, lambda right: None)
    threads.now += seconds
    threads.finish()


def test_names_take_turns(password_checks: PasswordChecks, threads: Threads) -> None:
    answers: list[bool] = []
    for number in range(20):
        password_checks.check("ann", f"guess {number}", HERE, True, lambda right: None)
    password_checks.check("bob", "bob", HERE, True, answers.append)
    for _ in range(3):  # the one under way, the next of ann, then bob
        work, answer = threads.running.pop()
        answer(work())
    assert answers == [True]


def test_unknown_users_delay_no_login_and_are_not_hashed(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    learn_span(password_checks, threads)
    checked, answers, invented = threads.checked, list[bool](), list[bool]()
    for number in range(1000):
        password_checks.check(f"nobody {number}", "x", HERE, True, invented.append)
    password_checks.check("ann", "ann", HERE, True, answers.append)
    threads.finish()
    assert (answers, invented) == ([True], [])
    assert threads.checked == checked + 1
    threads.pass_time(0.06)
    threads.pass_time(6.0)  # after many names refusals are held back
    assert invented == [False] * 1000
    assert password_checks._lines == {}


def test_an_invented_name_is_refused_as_late_as_another_one(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    learn_span(password_checks, threads)
    answers: dict[str, list[bool]] = {"ann": [], "nobody": []}
    for name, got in answers.items():
        for number in range(FREE_FAILURES + 2):
            password_checks.check(name, f"guess {number}", HERE, True, got.append)
    for wait in (0.05, 0.05, 0.05, 0.3, 0.05, 0.5):
        threads.pass_time(wait)
        threads.finish()
        assert 0 <= len(answers["ann"]) - len(answers["nobody"]) < FREE_FAILURES
    threads.pass_time(0.6)
    threads.finish()
    assert answers == {"ann": [False] * (FREE_FAILURES + 2), "nobody": [False] * (FREE_FAILURES + 2)}


def test_a_name_that_is_taken_while_its_refusal_is_due(
    users: Users, password_checks: PasswordChecks, threads: Threads
) -> None:
    learn_span(password_checks, threads)
    answers: list[bool] = []
    password_checks.check("carl", "carl", HERE, True, answers.append)
    users.add("carl", quick_password("carl"))
    threads.pass_time(0.06)
    threads.finish()
    assert answers == [True]


def test_many_wrong_names_hold_refusals_back_and_no_right_password(
    users: Users, password_checks: PasswordChecks, threads: Threads
) -> None:
    for number in range(FREE_NAMES + 5):
        users.add(f"user {number}", quick_password("secret"))
        password_checks.check(f"user {number}", "wrong", HERE, True, lambda right: None)
    threads.finish()
    wrong, right = list[bool](), list[bool]()
    password_checks.check("ann", "wrong", HERE, True, wrong.append)
    password_checks.check("bob", "bob", HERE, True, right.append)
    threads.finish()
    assert (wrong, right) == ([], [True])
    threads.pass_time(6.0)
    assert wrong == [False]


def test_unknown_users_do_not_delay_logins_before_the_first_timed_check(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    answers: list[bool] = []
    password_checks.check("ann", "wrong", HERE, True, lambda right: None)
    for number in range(GUESSES_MAX):
        password_checks.check(f"nobody {number}", "x", HERE, True, lambda right: None)
    password_checks.check("ann", "ann", HERE, True, answers.append)
    for number in range(3 * GUESSES_MAX):
        password_checks.check(f"somebody {number}", "x", HERE, True, lambda right: None)
    assert answers == []
    work, answer = threads.running.pop(0)
    answer(work())
    work, answer = threads.running.pop()
    answer(work())
    assert answers == [True], "after one other hash of the user's own"


def test_very_many_users_may_log_in_again_from_a_single_network(
    password_checks: PasswordChecks, users: Users, threads: Threads
) -> None:
    names = [f"user {number}" for number in range(3 * GUESSES_MAX)]
    for name in names:
        users.add(name, quick_password(name))
    answers: list[bool] = []
    for name in names:
        password_checks.check(name, name, HERE, True, answers.append)
    threads.finish()
    assert answers == [True] * len(names)


def test_as_many_guesses_wait_as_may(password_checks: PasswordChecks, threads: Threads) -> None:
    answers: list[bool] = []
    for number in range(10 * GUESSES_MAX):
        password_checks.check("ann", f"guess {number}", HERE, True, lambda right: None)
    for _ in range(100):
        password_checks.check("bob", "bob", HERE, True, answers.append)
    assert sum(line.count() for line in password_checks._lines.values()) == GUESSES_MAX
    threads.finish()
    assert answers == [True] * 100, "the user with the most guesses loses one"


def test_an_abandoned_check_leaves_no_line(password_checks: PasswordChecks, threads: Threads) -> None:
    learn_span(password_checks, threads)
    for _ in range(FREE_FAILURES):
        password_checks.check("ann", f"wrong {_}", HERE, True, lambda right: None)
        threads.finish()
    checks = [password_checks.check("ann", f"guess {n}", HERE, True, lambda right: None) for n in range(50)]
    for check in checks:
        check.abandon()
    assert password_checks._lines == {}
    assert all(check.answer is None for check in checks)


def test_the_same_wrong_password_from_many_clients_is_a_single_failure(
    password_checks: PasswordChecks, threads: Threads
) -> None:
    answers: list[bool] = []
    for _ in range(500):
        password_checks.check("ann", "old", HERE, True, answers.append)
    threads.finish()
    assert answers == [False] * 500
    assert threads.checked == 1


def test_a_loopback_only_user_is_refused_after_a_complete_hash(
    password_checks: PasswordChecks, threads: Threads, users: Users, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Right or wrong, remembered or not, hashed by this broker or by RabbitMQ: each check costs a hash."""
    salted = base64.b64encode(b"salt" + hashlib.sha256(b"saltcarol").digest()).decode()
    users.add("carol", import_hash(salted), loopback_only=True)
    users.put("bob", None, loopback_only=True)
    answers: list[bool] = []
    for name in ("bob", "carol"):
        password_checks.check(name, name, HERE, True, answers.append)
    threads.finish()
    assert answers == [True, True]
    tried = [("bob", "bob"), ("bob", "wrong"), ("carol", "carol"), ("carol", "wrong")]
    hashed = hashes_made(monkeypatch)
    for count, (name, password) in enumerate(tried, start=1):
        password_checks.check(name, password, f"10.0.1.{count}", False, answers.append)
        assert len(answers) == count + 1, "not at once"
        threads.finish()
        assert (answers[-1], len(hashed)) == (False, count)
    assert all(each == hashed[0] for each in hashed)
    password_checks.check("bob", "bob", HERE, True, answers.append)
    assert answers[-1], "it is still remembered"


def test_a_dropped_guess_is_known_as_such(password_checks: PasswordChecks, threads: Threads) -> None:
    guesses = [
        password_checks.check("ann", f"guess {number}", HERE, True, lambda right: None)
        for number in range(GUESSES_MAX + 2)
    ]
    dropped = [number for number, guess in enumerate(guesses) if guess.was_dropped]
    assert dropped == [GUESSES_MAX + 1], "the newest, while the first one is checked"
