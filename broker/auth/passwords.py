"""The stored forms of passwords, and the check of a password.

Own hashes are argon2id with the least parameters that OWASP recommends (19 MiB, 2 passes, 1 lane). Hashes
from RabbitMQ are checked too: base64(salt + digest(salt + password)), a salt of 4 bytes.
[RabbitMQ passwords]
"""

import base64
import binascii
import hashlib
import hmac
import secrets
from typing import Final, NamedTuple

import argon2

from broker.core.errors import PreconditionFailed
from protocol import scram

ARGON2ID: Final = "argon2id"
RABBIT_SHA256: Final = "rabbit_password_hashing_sha256"
RABBIT_SHA512: Final = "rabbit_password_hashing_sha512"
SCRAM_ITERATIONS: Final = 100_000

_DIGESTS: Final = {RABBIT_SHA256: "sha256", RABBIT_SHA512: "sha512"}
_HASHINGS: Final = f"{ARGON2ID}, {RABBIT_SHA256}, {RABBIT_SHA512}"
_SALT_BYTES: Final = 4
_SCRAM_SALT_BYTES: Final = 16
_HASHER: Final = argon2.PasswordHasher(time_cost=2, memory_cost=19_456, parallelism=1)
_TIME_COST_MAX: Final = 64  # for an imported hash, whose check must not stop the broker
_MEMORY_COST_MAX: Final = 1 << 20
_LANES_MAX: Final = 64


class Password(NamedTuple):
    """The stored form of a password: `hash` in the form that `hashing` names, and `verifier` for SCRAM."""

    hash: str
    hashing: str = ARGON2ID
    verifier: str = ""


NO_PASSWORD: Final = Password("")
"""The stored form for users that log in without a password."""


def make_password(password: str, scram_iterations: int = SCRAM_ITERATIONS) -> Password:
    """Return the stored form of a new password; with 0 iterations without a verifier. Takes about 100 ms.

    Raises PreconditionFailed for the empty password, with which no log-in is allowed.
    """
    if not password:
        raise PreconditionFailed(
            "a password must not be empty; give an empty password hash for a user without a password"
        )
    verifier = ""
    if scram_iterations:
        verifier = str(
            scram.derive_verifier(password, secrets.token_bytes(_SCRAM_SALT_BYTES), scram_iterations)
        )
    return Password(hash_password(password), ARGON2ID, verifier)


def hash_password(password: str) -> str:
    """Return a salted argon2id hash in the PHC text form. Takes tens of milliseconds."""
    return _HASHER.hash(_octets(password))


def hash_for_rabbitmq(password: str) -> str:
    """Return a hash in RabbitMQ's default form, rabbit_password_hashing_sha256."""
    salt = secrets.token_bytes(_SALT_BYTES)
    return base64.b64encode(salt + hashlib.sha256(salt + _octets(password)).digest()).decode()


def import_hash(password_hash: str, hashing: str = RABBIT_SHA256, verifier: str = "") -> Password:
    """Return the stored form of a password hashed elsewhere; an empty hash: the user has no password.

    Raises PreconditionFailed if the hash does not have the form of its kind, or the kind is unknown.
    """
    if not password_hash:
        return NO_PASSWORD
    if hashing == ARGON2ID:
        _check_argon2id(password_hash)
    elif hashing in _DIGESTS:
        _salt_and_digest(password_hash, _DIGESTS[hashing])
    else:
        raise PreconditionFailed(f"hashing_algorithm '{hashing}' is not known, allowed: {_HASHINGS}")
    if verifier:
        try:
            scram.read_verifier(verifier)
        except ValueError as error:
            raise PreconditionFailed(f"a SCRAM verifier cannot be read: {error}") from error
    return Password(password_hash, hashing, verifier)


def matches(stored: Password, password: str) -> bool:
    """Whether `password` is the password of `stored`. If not, takes as long as `make_password`.

    False too for the empty password, and for a stored form that is empty or not readable.
    """
    if stored.hashing == ARGON2ID and stored.hash and password:
        try:
            return _HASHER.verify(stored.hash, _octets(password))
        except (argon2.exceptions.VerificationError, argon2.exceptions.InvalidHashError):
            return False
    if stored.hashing in _DIGESTS and stored.hash and password:
        salt, digest = _salt_and_digest(stored.hash, _DIGESTS[stored.hashing])
        computed = hashlib.new(_DIGESTS[stored.hashing], salt + _octets(password)).digest()
        if hmac.compare_digest(computed, digest):
            return True
    waste_time(password)
    return False


def refuse(stored: Password, password: str) -> bool:
    """Return False after as long as a wrong password takes: the user may not log in from this origin.

    The hash in `stored` is not used, so the time does not show whether the password is right.
    """
    waste_time(password)
    return False


def waste_time(password: str) -> None:
    """Take as long as a wrong password does, so that the time does not show whether a user exists."""
    _HASHER.hash(_octets(password))


def _salt_and_digest(password_hash: str, digest: str) -> tuple[bytes, bytes]:
    try:
        data = base64.b64decode(password_hash.encode(), validate=True)
    except (binascii.Error, UnicodeEncodeError) as error:
        raise PreconditionFailed(f"a password hash is not base 64: {error}") from error
    size = _SALT_BYTES + hashlib.new(digest).digest_size
    if len(data) != size:
        raise PreconditionFailed(f"a password hash has {len(data)} bytes; with {digest} it has {size}")
    return data[:_SALT_BYTES], data[_SALT_BYTES:]


def _check_argon2id(password_hash: str) -> None:
    try:
        costs = argon2.extract_parameters(password_hash)
    except argon2.exceptions.InvalidHashError as error:
        raise PreconditionFailed("a password hash is no argon2 hash in the PHC form") from error
    if (
        costs.type is not argon2.Type.ID
        or costs.time_cost > _TIME_COST_MAX
        or costs.memory_cost > _MEMORY_COST_MAX
        or costs.parallelism > _LANES_MAX
    ):
        raise PreconditionFailed(
            f"a password hash is {costs.type.name} with t={costs.time_cost}, m={costs.memory_cost}, "
            f"p={costs.parallelism}; allowed: argon2id up to t={_TIME_COST_MAX}, m={_MEMORY_COST_MAX}, "
            f"p={_LANES_MAX}"
        )


def _octets(password: str) -> bytes:
    # a password from the environment that is not UTF-8 has surrogates
    return password.encode("utf-8", "surrogatepass")
