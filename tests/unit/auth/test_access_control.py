"""Log-ins by every mechanism: accepted users, refused users, and the offered mechanisms."""

from collections.abc import Callable

import pytest

from broker.adapters.access import Origin
from broker.auth.access_control import MECHANISMS, AccessControl, Login
from broker.auth.backoff import FREE_FAILURES
from broker.auth.passwords import NO_PASSWORD, make_password
from broker.auth.users import Users
from broker.core.ports import MessageStore
from protocol.errors import COMMAND_INVALID, SYNTAX_ERROR, ProtocolError
from tests.support.auth.broker_with_users import quick_password
from tests.support.auth.scram_client import ScramClient

LOCAL = Origin("127.0.0.1", 1, True)
REMOTE = Origin("10.0.0.1", 1, False)
ANN = make_password("ann", 4096)


class Caller:
    """An applicant that records its calls."""

    def __init__(self) -> None:
        self.answers: list[tuple[str, str | bytes]] = []

    def on_challenge(self, challenge: bytes) -> None:
        self.answers.append(("challenged", challenge))

    def on_accepted(self, user: str, proof: bytes) -> None:
        self.answers.append(("accepted", user))
        if proof:
            self.answers.append(("proof", proof))

    def on_refused(self, user: str, why: str) -> None:
        self.answers.append(("refused", user))


class Clock:
    """A clock, and calls that wait for it."""

    def __init__(self) -> None:
        self.now = 100.0
        self.later: list[Callable[[], None]] = []

    def call_later(self, seconds: float, call: Callable[[], None]) -> None:
        self.later.append(call)


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def users() -> Users:
    users = Users(MessageStore())
    users.add("ann", ANN)
    users.add("guest", quick_password("guest"))
    users.add("robot", NO_PASSWORD)
    return users


@pytest.fixture
def gate(users: Users, clock: Clock) -> AccessControl:
    return AccessControl(
        users,
        clock.call_later,
        lambda work, answer: answer(work()),
        MECHANISMS,
        "guest",
        4096,
        lambda: clock.now,
    )


def begun(
    gate: AccessControl, mechanism: str, response: bytes, origin: Origin = LOCAL
) -> tuple[Login, Caller]:
    caller = Caller()
    login = gate.login(mechanism, origin, caller)
    login.respond(response)
    return login, caller


def outcome(
    gate: AccessControl, mechanism: str, response: bytes, origin: Origin = LOCAL
) -> tuple[str, str | bytes]:
    _, caller = begun(gate, mechanism, response, origin)
    (answers,) = caller.answers
    return answers


def scram(gate: AccessControl, user: str, password: str, origin: Origin = LOCAL) -> Caller:
    """A client's side of SCRAM-SHA-256, checking the broker's proof too."""
    client = ScramClient(user, password)
    login, caller = begun(gate, "SCRAM-SHA-256", client.first(), origin)
    challenge = caller.answers[0][1]
    assert isinstance(challenge, bytes)
    login.respond(client.final(challenge))
    if caller.answers[-1][0] == "proof":
        assert caller.answers[-1][1] == client.expected
    return caller


def test_offered_mechanisms(gate: AccessControl, users: Users) -> None:
    assert gate.mechanisms(LOCAL) == "PLAIN AMQPLAIN SCRAM-SHA-256 ANONYMOUS"
    assert gate.mechanisms(certified("ann")) == "PLAIN AMQPLAIN SCRAM-SHA-256 EXTERNAL ANONYMOUS"
    few = AccessControl(users, lambda s, c: None, lambda w, a: None, ["EXTERNAL", "PLAIN"])
    assert (few.mechanisms(LOCAL), few.mechanisms(certified("robot"))) == ("PLAIN", "PLAIN EXTERNAL")
    without = AccessControl(users, lambda s, c: None, lambda w, a: None, scram_iterations=0)
    assert without.mechanisms(LOCAL) == "PLAIN AMQPLAIN"


def test_external_is_offered_only_if_the_certificate_names_a_permitted_user(
    gate: AccessControl, users: Users
) -> None:
    assert "EXTERNAL" not in gate.mechanisms(certified("nobody"))
    assert "EXTERNAL" not in gate.mechanisms(certified(""))
    assert "EXTERNAL" not in gate.mechanisms(certified("guest"))
    assert "EXTERNAL" in gate.mechanisms(certified("guest", loopback=True))
    users.delete("ann")
    assert "EXTERNAL" not in gate.mechanisms(certified("ann"))


@pytest.mark.parametrize("mechanism", ["", "plain", "CRAM-MD5", "EXTERNAL", "PLAIN AMQPLAIN"])
def test_mechanisms_that_are_not_offered_are_refused(gate: AccessControl, mechanism: str) -> None:
    with pytest.raises(ProtocolError, match="unknown authentication mechanism") as caught:
        gate.login(mechanism, LOCAL, Caller())
    assert caught.value.code == COMMAND_INVALID


@pytest.mark.parametrize(
    ("response", "origin", "expected"),
    [
        (b"\0ann\0ann", REMOTE, ("accepted", "ann")),
        (b"\0ann\0Ann", LOCAL, ("refused", "ann")),
        (b"\0nobody\0ann", LOCAL, ("refused", "nobody")),
        (b"\0guest\0guest", LOCAL, ("accepted", "guest")),
        (b"\0guest\0guest", REMOTE, ("refused", "guest")),
        (b"\0robot\0", LOCAL, ("refused", "robot")),
        (b"\0robot\0robot", LOCAL, ("refused", "robot")),
    ],
)
def test_plain(gate: AccessControl, response: bytes, origin: Origin, expected: tuple[str, str]) -> None:
    assert outcome(gate, "PLAIN", response, origin) == expected


def test_an_invalid_sasl_response_is_refused(gate: AccessControl) -> None:
    for mechanism in ("PLAIN", "AMQPLAIN", "SCRAM-SHA-256"):
        with pytest.raises(ProtocolError) as caught:
            begun(gate, mechanism, b"?")
        assert caught.value.code == SYNTAX_ERROR


@pytest.mark.parametrize(
    ("user", "password", "origin", "expected"),
    [
        ("ann", "ann", REMOTE, "accepted"),
        ("ann", "Ann", REMOTE, "refused"),
        ("nobody", "ann", REMOTE, "refused"),
        ("guest", "guest", LOCAL, "refused"),  # only a hash of RabbitMQ is kept of this password
        ("robot", "", LOCAL, "refused"),
    ],
)
def test_scram(gate: AccessControl, user: str, password: str, origin: Origin, expected: str) -> None:
    assert scram(gate, user, password, origin).answers[1] == (expected, user)


def test_scram_from_outside_loopback(gate: AccessControl, users: Users) -> None:
    users.put("guest", make_password("guest", 4096))
    assert scram(gate, "guest", "guest", REMOTE).answers[1] == ("refused", "guest")
    assert scram(gate, "guest", "guest", LOCAL).answers[1] == ("accepted", "guest")


def test_scram_with_a_password_that_was_replaced_after_the_challenge(
    gate: AccessControl, users: Users
) -> None:
    client = ScramClient("ann", "ann")
    login, caller = begun(gate, "SCRAM-SHA-256", client.first())
    challenge = caller.answers[0][1]
    assert isinstance(challenge, bytes)
    users.put("ann", make_password("new", 4096))
    login.respond(client.final(challenge))
    assert caller.answers[1:] == [("refused", "ann")]


def test_scram_salts_do_not_reveal_existing_users(gate: AccessControl) -> None:
    def salt(user: str) -> bytes:
        challenge = begun(gate, "SCRAM-SHA-256", f"n,,n={user},r=x".encode())[1].answers[0][1]
        assert isinstance(challenge, bytes)
        assert challenge.endswith(b",i=4096")
        return challenge.split(b",")[1]

    assert salt("nobody") == salt("nobody") != salt("noone")
    assert len(salt("nobody")) == len(salt("ann"))
    before = salt("nobody")
    salts = []
    for secret in (b"this log", b"that log", b"this log"):
        gate.set_decoy_secret(secret)
        salts.append(salt("nobody"))
    assert salts[0] == salts[2]
    assert len({before, *salts}) == 3


def test_failed_proofs_delay_the_next_challenge(gate: AccessControl, clock: Clock) -> None:
    for _ in range(FREE_FAILURES):
        scram(gate, "ann", "wrong", REMOTE)
    _, waiting = begun(gate, "SCRAM-SHA-256", b"n,,n=ann,r=x", REMOTE)
    assert waiting.answers == []
    assert scram(gate, "ann", "ann", LOCAL).answers[1] == ("accepted", "ann")  # from another address
    clock.now += 10
    clock.later.pop()()
    assert waiting.answers[0][0] == "challenged"


def test_scram_proofs_during_back_off_are_refused_unchecked(gate: AccessControl) -> None:
    first = b"n,,n=ann,r=client"
    begun_before = [begun(gate, "SCRAM-SHA-256", first, REMOTE) for _ in range(10)]
    for _ in range(FREE_FAILURES):
        scram(gate, "ann", "wrong", REMOTE)
    for login, caller in begun_before:
        login.respond(b"whatever")
        assert caller.answers[-1] == ("refused", "ann")


def test_a_delayed_challenge_is_not_sent_to_an_abandoned_login(gate: AccessControl, clock: Clock) -> None:
    for _ in range(FREE_FAILURES):
        scram(gate, "ann", "wrong", REMOTE)
    login, caller = begun(gate, "SCRAM-SHA-256", b"n,,n=ann,r=x", REMOTE)
    login.abandon()
    clock.later.pop()()
    assert caller.answers == []


def certified(name: str, loopback: bool = False) -> Origin:
    return Origin("10.0.0.1", 1, loopback, name)


def test_external(gate: AccessControl) -> None:
    assert outcome(gate, "EXTERNAL", b"", certified("robot")) == ("accepted", "robot")
    assert outcome(gate, "EXTERNAL", b"somebody", certified("robot")) == ("accepted", "robot")
    assert outcome(gate, "EXTERNAL", b"", certified("nobody")) == ("refused", "nobody")
    assert outcome(gate, "EXTERNAL", b"", certified("")) == ("refused", "")
    assert outcome(gate, "EXTERNAL", b"", certified("guest")) == ("refused", "guest")
    assert outcome(gate, "EXTERNAL", b"", certified("guest", loopback=True)) == ("accepted", "guest")


def test_anonymous(gate: AccessControl, users: Users) -> None:
    assert outcome(gate, "ANONYMOUS", b"trace", LOCAL) == ("accepted", "guest")
    assert outcome(gate, "ANONYMOUS", b"", REMOTE) == ("refused", "guest")
    users.delete("guest")
    assert outcome(gate, "ANONYMOUS", b"", LOCAL) == ("refused", "guest")
