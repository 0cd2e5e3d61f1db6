"""Deciding whether somebody is who they say."""

import hashlib
import hmac
import secrets

from broker.auth.passwords import matches, waste_time
from broker.auth.user import User
from broker.auth.users import Users


class Authenticator:
    """Checks names and passwords against the users.

    A password hash is slow on purpose. After the first success a keyed digest of the password is kept with
    the user, in memory only, so that reconnects are cheap; whatever changes the user's password drops it.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)

    def remembered(self, user: str, password: str, loopback: bool) -> bool | None:
        """Decide without a slow hash: True or False; None where only `verify` can tell.

        False only for a user who may come from loopback alone and does not: that needs no password.
        """
        known = self._users.get(user)
        if known is None:
            return None
        if known.loopback_only and not loopback:
            return False
        if known.remembered and hmac.compare_digest(known.remembered, self._digest(user, password)):
            return True
        return None

    def verify(self, user: str, password: str, loopback: bool) -> bool:
        """Decide with the slow hash: tens of milliseconds and 19 MiB, in any thread, never on the event loop.

        An unknown user takes as long as a wrong password.
        """
        known = self._users.get(user)
        if known is None:
            waste_time(password)
            return False
        return self._verify_known(known, password, loopback)

    def _verify_known(self, known: User, password: str, loopback: bool) -> bool:
        if not matches(known.password, password):
            return False
        # if the password changed meanwhile, `known` is no longer the user that others find
        known.remembered = self._digest(known.name, password)
        return loopback or not known.loopback_only

    def _digest(self, user: str, password: str) -> bytes:
        name = user.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(name).to_bytes(4) + name, key=self._key)
        digest.update(password.encode("utf-8", "surrogatepass"))
        return digest.digest()
