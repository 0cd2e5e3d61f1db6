"""Password hashes: argon2id with the least parameters that OWASP recommends (19 MiB, 2 passes, 1 lane)."""

from typing import Final

import argon2

_HASHER: Final = argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)


def hash_password(password: str) -> str:
    """A salted hash in the PHC text form. Takes tens of milliseconds."""
    return _HASHER.hash(_octets(password))


def matches(password_hash: str, password: str) -> bool:
    """Whether `password` is the one that was hashed; False also for a hash that cannot be read."""
    try:
        return _HASHER.verify(password_hash, _octets(password))
    except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
        return False


def waste_time(password: str) -> None:
    """Take as long as `matches` does."""
    _HASHER.hash(_octets(password))


def _octets(password: str) -> bytes:
    # what a client sent need not be UTF-8 and arrives with surrogates then
    return password.encode("utf-8", "surrogatepass")
