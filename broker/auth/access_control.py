"""The implementation of the adapters' port `Access`: authentication and authorisation."""

from __future__ import annotations

import time
from collections.abc import Callable, Collection
from typing import Final, final

from broker.auth.authenticator import Authenticator
from broker.auth.backoff import BackOff
from broker.auth.logins import (
    Decoy,
    KnownLogin,
    Origin,
    PasswordLogin,
    ScramLogin,
    explain_refusal,
    refusal_reason,
)
from broker.auth.password_checks import Answer, CallLater, Check, PasswordChecks
from broker.auth.passwords import SCRAM_ITERATIONS
from broker.auth.terms import Applicant
from broker.auth.users import Users
from protocol import sasl, scram
from protocol.errors import COMMAND_INVALID, ProtocolError

MECHANISMS: Final = (sasl.PLAIN, sasl.AMQPLAIN, scram.MECHANISM, sasl.EXTERNAL)
"""The mechanisms in the order of the offer; ANONYMOUS follows if `anonymous` is set."""

Login = PasswordLogin | ScramLogin | KnownLogin


@final
class AccessControl:
    """The authentication and authorisation of users.

    `mechanisms`: the mechanisms of `MECHANISMS` that are offered. `anonymous`: the user that ANONYMOUS logs
    in, "" to refuse ANONYMOUS. `call_later` and `run_in_thread` are as for `PasswordChecks`.
    """

    def __init__(
        self,
        users: Users,
        call_later: CallLater,
        run_in_thread: Callable[[Callable[[], bool], Answer], None],
        mechanisms: Collection[str] = MECHANISMS,
        anonymous: str = "",
        scram_iterations: int = SCRAM_ITERATIONS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.users = users
        self._call_later = call_later
        self._clock = clock
        self._backoff = BackOff()
        self._checks = PasswordChecks(Authenticator(users), self._backoff, clock, call_later, run_in_thread)
        self._anonymous = anonymous
        self._decoy = Decoy(scram_iterations)
        offered = [mechanism for mechanism in MECHANISMS if mechanism in mechanisms]
        if not scram_iterations and scram.MECHANISM in offered:
            offered.remove(scram.MECHANISM)
        self._offered = [*offered, sasl.ANONYMOUS] if anonymous else offered

    def set_decoy_secret(self, secret: bytes) -> None:
        """Derive the challenges of unknown users from `secret`, so that they are the same after a restart."""
        self._decoy.set_secret(secret)

    # -- log-ins

    def mechanisms(self, origin: Origin) -> str:
        """Return the mechanisms offered to a peer, as connection.start lists them.

        EXTERNAL is offered only to peers whose certificate names a user. Some clients prefer EXTERNAL to any
        password that they have, and would be refused.
        """
        external = origin.identity is not None and not refusal_reason(self.users.get(origin.identity), origin)
        return " ".join(mechanism for mechanism in self._offered if external or mechanism != sasl.EXTERNAL)

    def login(self, mechanism: str, origin: Origin, applicant: Applicant) -> Login:
        """Begin a log-in. Raises ProtocolError(COMMAND_INVALID) for a mechanism that is not for this peer.

        A peer with a certificate may try EXTERNAL without an offer. The refusal is logged with the name.
        """
        if mechanism not in self._offered or (mechanism == sasl.EXTERNAL and origin.identity is None):
            raise ProtocolError(COMMAND_INVALID, f"unknown authentication mechanism '{mechanism}'")
        if mechanism == sasl.PLAIN:
            return PasswordLogin(sasl.plain, self._checks, self.users, origin, applicant)
        if mechanism == sasl.AMQPLAIN:
            return PasswordLogin(sasl.amqplain, self._checks, self.users, origin, applicant)
        if mechanism == scram.MECHANISM:
            return ScramLogin(
                self.users, self._decoy, self._backoff, self._clock, self._call_later, origin, applicant
            )
        user = self._anonymous if mechanism == sasl.ANONYMOUS else origin.identity or ""
        return KnownLogin(self.users, user, origin, applicant)

    def check(self, user: str, password: str, origin: Origin, answer: Answer) -> Check:
        """Check a name and password; `answer` is called once, perhaps before this returns."""
        return self._checks.check(user, password, origin.address, origin.loopback, answer)

    def explain_refusal(self, check: Check, origin: Origin) -> str:
        """Return why a check has refused a password, for the log; clients must not learn the reason."""
        return explain_refusal(self.users, check.user, origin, check.was_dropped)

    # -- permissions

    def may_access(self, user: str, vhost: str) -> bool:
        """Whether `user` may open `vhost`."""
        return self.users.may_access(user, vhost)

    def is_allowed(self, user: str, vhost: str, right: str, name: str) -> bool:
        """Whether `user` may configure, write or read (`right`) an exchange or queue."""
        return self.users.is_allowed(user, vhost, right, name)

    def is_topic_allowed(self, user: str, vhost: str, right: str, exchange: str, routing_key: str) -> bool:
        """Whether `user` may publish (write) or bind (read) with a routing key at a topic exchange."""
        return self.users.is_topic_allowed(user, vhost, right, exchange, routing_key)

    def may_impersonate(self, user: str) -> bool:
        """Whether `user` may publish in the name of others."""
        return self.users.may_impersonate(user)

    def may_forward(self, user: str) -> bool:
        """Whether `user` may have the broker connect to other brokers."""
        return self.users.may_forward(user)

    def limit(self, user: str, kind: str) -> int | None:
        """The limit `max-connections` or `max-channels` of `user`, if it is set."""
        return self.users.limit(user, kind)
