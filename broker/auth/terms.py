"""What the rooms in front of this one call things when they ask who somebody is and what he may do."""

from typing import Final, Protocol

# what may be done with an exchange or queue
CONFIGURE: Final = "configure"
WRITE: Final = "write"
READ: Final = "read"

# what is limited for a user
MAX_CONNECTIONS: Final = "max-connections"
MAX_CHANNELS: Final = "max-channels"


class Applicant(Protocol):
    """A peer that wants in. Told `challenged` any number of times, then once one of the other two."""

    def challenged(self, challenge: bytes) -> None:
        """Send this, and hand the peer's answer to the log-in."""

    def accepted(self, user: str, proof: bytes) -> None:
        """The peer is `user`; `proof`, unless empty, is how it can tell that this is the right broker."""

    def refused(self, user: str, why: str) -> None:
        """The peer claimed to be `user` and is not let in; `why` is for the log and not for the peer."""
