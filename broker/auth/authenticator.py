"""Authenticate users by the stored hashes of their passwords."""

import hashlib
import hmac
import secrets

from broker.auth.passwords import NO_PASSWORD, Password
from broker.auth.users import Users


class Authenticator:
    """The stored hashes of the users' passwords, and the passwords known to be right.

    Checking a hash is slow on purpose. After the first success a keyed digest of the password is kept with
    the user, in memory only, so that reconnects are cheap. A change of the user's password drops the digest.
    """

    def __init__(self, users: Users) -> None:
        self._users = users
        self._key = secrets.token_bytes(32)

    def is_remembered(self, user: str, password: str, loopback: bool) -> bool:
        """Whether a password is known to be right without a slow hash.

        False for a user that may log in from loopback only and does not: the refusal then takes as long as
        any refusal.
        """
        known = self._users.get(user)
        if known is None or self.is_outside_loopback(user, loopback) or not known.remembered:
            return False
        return hmac.compare_digest(known.remembered, self._digest(user, password))

    def is_outside_loopback(self, user: str, loopback: bool) -> bool:
        """Whether the user may log in from loopback only and does not."""
        known = self._users.get(user)
        return known is not None and known.loopback_only and not loopback

    def stored_password(self, user: str) -> Password:
        """Return the stored password of `user`; NO_PASSWORD, which no password matches, if unknown."""
        known = self._users.get(user)
        return NO_PASSWORD if known is None else known.password

    def remember(self, user: str, password: str, loopback: bool) -> bool:
        """Remember a password that matches the stored hash; return whether the user may log in."""
        if self.is_outside_loopback(user, loopback):
            return False
        self._users.require_user(user).remembered = self._digest(user, password)
        return True

    def _digest(self, user: str, password: str) -> bytes:
        name = user.encode("utf-8", "surrogatepass")
        digest = hashlib.blake2b(len(name).to_bytes(4) + name, key=self._key)
        digest.update(password.encode("utf-8", "surrogatepass"))
        return digest.digest()
