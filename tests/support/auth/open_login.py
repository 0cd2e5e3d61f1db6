"""A broker's door without a keeper: who comes is let in when a test says so."""

from collections.abc import Callable

from broker.adapters.access import Origin
from broker.auth.terms import Applicant
from protocol.sasl import plain


class OpenAccess:
    """An Access that accepts every log-in as soon as a test says so."""

    def __init__(self) -> None:
        self.at_once = True
        self.asked: list[Callable[[bool], None]] = []

    def mechanisms(self, origin: Origin) -> str:
        return "PLAIN"

    def login(self, mechanism: str, origin: Origin, applicant: Applicant) -> "PendingLogin":
        return PendingLogin(self, origin, applicant)

    def check(self, user: str, password: str, origin: Origin, answer: Callable[[bool], None]) -> None:
        if self.at_once:
            answer(password == "guest")
        else:
            self.asked.append(answer)

    def may_access(self, user: str, vhost: str) -> bool:
        return True

    def is_allowed(self, user: str, vhost: str, what: str, name: str) -> bool:
        return True

    def is_topic_allowed(self, user: str, vhost: str, what: str, exchange: str, routing_key: str) -> bool:
        return True

    def may_impersonate(self, user: str) -> bool:
        return False

    def may_forward(self, user: str) -> bool:
        return user == "guest"

    def limit(self, user: str, what: str) -> int | None:
        return None


class PendingLogin:
    """A PLAIN log-in at a Door."""

    def __init__(self, door: OpenAccess, origin: Origin, applicant: Applicant) -> None:
        self.door = door
        self.origin = origin
        self.applicant = applicant
        self.user = ""

    def respond(self, response: bytes) -> None:
        self.user, password = plain(response)
        self.door.check(self.user, password, self.origin, self.answered)

    def answered(self, right: bool) -> None:
        if right:
            self.applicant.on_accepted(self.user, b"")
        else:
            self.applicant.on_refused(self.user, "wrong")

    def abandon(self) -> None:
        pass
