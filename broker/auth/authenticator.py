"""Deciding whether somebody is who they say."""

import hashlib
import hmac
import secrets

from broker.auth.passwords import NO_PASSWORD, Password
from broker.auth.users import Users


class Authenticator:
    """Knows what is kept of passwords, and which have been right.

    Checking a hash is slow on purpose. After the first success a keyed digest of the password is kept with
    the user, in memory only, so that reconnects are cheap; whatever changes the user's password drops it.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)

    def remembered(self, user: str, password: str, loopback: bool) -> bool | None:
        """Decide without a slow hash: True or False; None where only that can tell.

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

    def kept(self, user: str) -> Password:
        """What is kept of the password of `user`; NO_PASSWORD, which none matches, for nobody."""
        known = self._users.get(user)
        return NO_PASSWORD if known is None else known.password

    def passed(self, user: str, password: str, loopback: bool) -> bool:
        """Remember a password that matches what is kept; whether the user may come from where he does."""
        known = self._users.known(user)
        known.remembered = self._digest(user, password)
        return loopback or not known.loopback_only

    def _digest(self, user: str, password: str) -> bytes:
        name = user.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(name).to_bytes(4) + name, key=self._key)
        digest.update(password.encode("utf-8", "surrogatepass"))
        return digest.digest()
