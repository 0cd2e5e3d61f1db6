"""The mechanisms of SASL: each takes the client's messages, and accepts or refuses the client. [RFC 4422]"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
from collections.abc import Callable
from typing import Final, Protocol, final

from broker.auth.backoff import BackOff
from broker.auth.password_checks import CallLater, Check, PasswordChecks
from broker.auth.terms import Applicant
from broker.auth.user import User
from broker.auth.users import Users
from protocol import scram

NONCE_BYTES: Final = 18
ABSENT: Final = "there is no such user"
MISMATCH: Final = "wrong password"
UNSET: Final = "the user has no password"
OUTSIDE: Final = "this user may log in from loopback only"
TOO_MANY: Final = "too many failed log-ins"
TOO_MANY_WAIT: Final = "too many log-ins wait for the check of a password"


class Origin(Protocol):
    """The origin of a peer. `identity`: the name in its certificate, None without a verified certificate."""

    address: str
    loopback: bool
    identity: str | None


def explain_refusal(users: Users, name: str, origin: Origin, was_dropped: bool = False) -> str:
    """Return why a name and password were refused, for the log; clients must not learn the reason.

    `was_dropped`: as in `Check`.
    """
    user = users.get(name)
    reason = refusal_reason(user, origin)
    if reason or user is None:
        return reason
    if was_dropped:
        return TOO_MANY_WAIT
    return MISMATCH if user.password.hash else UNSET


@final
class PasswordLogin:
    """PLAIN and AMQPLAIN: name and password in a single message. [RFC 4616]"""

    def __init__(
        self,
        read: Callable[[bytes], tuple[str, str]],
        checks: PasswordChecks,
        users: Users,
        origin: Origin,
        applicant: Applicant,
    ) -> None:
        self._read = read
        self._checks = checks
        self._users = users
        self._origin = origin
        self._applicant = applicant
        self._user = ""
        self._check: Check | None = None

    def respond(self, response: bytes) -> None:
        """Take the message. Raises ProtocolError(SYNTAX_ERROR)."""
        self._user, password = self._read(response)
        origin = self._origin
        self._check = self._checks.check(
            self._user, password, origin.address, origin.loopback, self._answered
        )

    def abandon(self) -> None:
        """End the log-in: the peer has disconnected."""
        if self._check is not None:
            self._check.abandon()

    def _answered(self, right: bool) -> None:
        if right:
            self._applicant.on_accepted(self._user, b"")
        else:
            # only a check that is dropped at once is answered before it is known here
            was_dropped = self._check is None or self._check.was_dropped
            cause = explain_refusal(self._users, self._user, self._origin, was_dropped)
            self._applicant.on_refused(self._user, cause)


@final
class ScramLogin:
    """SCRAM-SHA-256. A user without a verifier, or an unknown user, gets a challenge as any other user."""

    def __init__(
        self,
        users: Users,
        decoy: Decoy,
        backoff: BackOff,
        clock: Callable[[], float],
        call_later: CallLater,
        origin: Origin,
        applicant: Applicant,
    ) -> None:
        self._users = users
        self._decoy = decoy
        self._backoff = backoff
        self._clock = clock
        self._call_later = call_later
        self._origin = origin
        self._applicant = applicant
        self._exchange = scram.Exchange(base64.b64encode(secrets.token_bytes(NONCE_BYTES)).decode())
        self._verifier = ""  # the user's verifier at the time of the challenge
        self._steps = 0
        self._abandoned = False

    def respond(self, response: bytes) -> None:
        """Take the next message. Raises ProtocolError(SYNTAX_ERROR)."""
        exchange = self._exchange
        self._steps += 1
        if self._steps == 1:
            exchange.first(response)
            wait = self._backoff.login_delay(self._origin.address, exchange.user, self._clock())
            if wait > 0.0:
                self._call_later(wait, self._challenge)
            else:
                self._challenge()
        else:
            self._finish(response)

    def abandon(self) -> None:
        """End the log-in: the peer has disconnected."""
        self._abandoned = True

    def _challenge(self) -> None:
        if not self._abandoned:
            known = self._users.get(self._exchange.user)
            text = self._verifier = known.password.verifier if known is not None else ""
            verifier = scram.read_verifier(text) if text else self._decoy.verifier(self._exchange.user)
            self._applicant.on_challenge(self._exchange.challenge(verifier))

    def _finish(self, response: bytes) -> None:
        """Check the proof, unless too many log-ins have failed in the meantime."""
        user, origin = self._exchange.user, self._origin
        now = self._clock()
        if self._backoff.login_delay(origin.address, user, now) > 0.0:
            self._applicant.on_refused(user, TOO_MANY)
            return
        proof = self._exchange.final(response)
        known = self._users.get(user)
        if proof is None or known is None or known.password.verifier != self._verifier:
            hold = self._backoff.refusal_delay(origin.address, now)
            self._backoff.count_failure(origin.address, user, now)
            if hold > 0.0:
                self._call_later(hold, self._refuse)
            else:
                self._refuse()
            return
        self._backoff.forget_failures(origin.address, user)
        if known.loopback_only and not origin.loopback:
            self._applicant.on_refused(user, OUTSIDE)
        else:
            self._applicant.on_accepted(user, proof)

    def _refuse(self) -> None:
        if not self._abandoned:
            user = self._exchange.user
            self._applicant.on_refused(user, explain_refusal(self._users, user, self._origin))


@final
class Decoy:
    """Verifiers for users that have none: a name always has the same salt, and no password is right.

    Each process has other verifiers until `set_secret` sets a secret. Without the secret, a salt that changes
    with a restart shows that the user does not exist.
    """

    def __init__(self, iterations: int) -> None:
        self._key = secrets.token_bytes(32)
        self._iterations = iterations

    def set_secret(self, secret: bytes) -> None:
        """Derive the verifiers from a secret that outlives the process."""
        self._key = hashlib.blake2b(secret, person=b"scram decoys").digest()

    def verifier(self, user: str) -> scram.Verifier:
        """Return a verifier that no proof matches."""
        name = user.encode("utf-8", "surrogatepass")
        salt = hmac.digest(self._key, name, "sha256")[:16]
        return scram.Verifier(salt, self._iterations, secrets.token_bytes(32), secrets.token_bytes(32))


@final
class KnownLogin:
    """EXTERNAL and ANONYMOUS: the user is known before the client's message, which is ignored."""

    def __init__(self, users: Users, user: str, origin: Origin, applicant: Applicant) -> None:
        self._users = users
        self._user = user
        self._origin = origin
        self._applicant = applicant

    def respond(self, response: bytes) -> None:
        """Take the message."""
        reason = refusal_reason(self._users.get(self._user), self._origin)
        if reason:
            self._applicant.on_refused(self._user, reason)
        else:
            self._applicant.on_accepted(self._user, b"")

    def abandon(self) -> None:
        """End the log-in: the peer has disconnected."""


def refusal_reason(known: User | None, origin: Origin) -> str:
    """Return why a user that needs no password may not log in; "" if the user may."""
    if known is None:
        return ABSENT
    return OUTSIDE if known.loopback_only and not origin.loopback else ""
