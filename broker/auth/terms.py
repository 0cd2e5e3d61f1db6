"""The names of rights and of users' limits, and the interface of a peer that logs in."""

from typing import Final, Protocol

# the rights on an exchange or queue
CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

# the limits of a user
MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"


class Applicant(Protocol):
    """A peer that logs in. Gets any number of `on_challenge`, then `on_accepted` or `on_refused` once."""

    def on_challenge(self, challenge: bytes) -> None:
        """Send `challenge` to the peer, and pass the peer's answer to the log-in."""

    def on_accepted(self, user: str, proof: bytes) -> None:
        """Accept the peer as `user`; `proof`, unless empty, proves to the peer that the broker is genuine."""

    def on_refused(self, user: str, reason: str) -> None:
        """Refuse the peer, which claimed to be `user`; `reason` is for the log and not for the peer."""
