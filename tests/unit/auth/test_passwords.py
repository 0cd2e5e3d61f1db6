"""Stored passwords: own hashes, RabbitMQ's hashes, verifiers for SCRAM, and refused values."""

import base64
import hashlib

import pytest

from broker.auth import passwords
from broker.auth.passwords import NO_PASSWORD, Password, import_hash, make_password, matches
from broker.core.errors import PreconditionFailed
from protocol import scram
from tests.support.effort import hashes_made

# made by RabbitMQ: rabbitmqctl hash_password test12, from its documentation of the algorithm
DOCUMENTED_SALT = bytes.fromhex("908dc60a")
DOCUMENTED = "kI3GCqW5JLMJa4iX1lo7X4D6XbYqlLgxIs30+P6tENUV2POR"


def test_a_new_password_has_a_hash_and_a_verifier() -> None:
    kept = make_password("sesame", 4096)
    assert kept.hash.startswith("$argon2id$")
    assert kept.hashing == "argon2id"
    assert matches(kept, "sesame")
    assert not matches(kept, "Sesame")
    verifier = scram.read_verifier(kept.verifier)
    assert verifier == scram.derive_verifier("sesame", verifier.salt, 4096)
    assert make_password("sesame", 4096).verifier != kept.verifier


def test_zero_iterations_make_no_scram_verifier() -> None:
    assert make_password("sesame", 0).verifier == ""


def test_the_empty_password_is_refused() -> None:
    with pytest.raises(PreconditionFailed, match="must not be empty"):
        make_password("")
    assert not matches(Password(passwords.hash_password("")), "")


def test_the_example_in_the_documentation_of_rabbitmq() -> None:
    kept = import_hash(DOCUMENTED)
    assert base64.b64decode(DOCUMENTED)[:4] == DOCUMENTED_SALT
    assert matches(kept, "test12")
    assert not matches(kept, "test13")
    assert not matches(kept, "")


@pytest.mark.parametrize("digest", ["sha256", "sha512"])
def test_hashes_of_rabbitmq(digest: str) -> None:
    salt = b"\x00\xff\x10\x80"
    hashed = base64.b64encode(salt + hashlib.new(digest, salt + "gehe\u00efm".encode()).digest()).decode()
    kept = import_hash(hashed, f"rabbit_password_hashing_{digest}")
    assert matches(kept, "gehe\u00efm")
    assert not matches(kept, "geheim")


def test_a_hash_of_this_broker_is_read_again() -> None:
    kept = make_password("sesame", 4096)
    assert import_hash(*kept) == kept


def test_an_empty_hash_means_no_password() -> None:
    assert import_hash("", "rabbit_password_hashing_sha512") == NO_PASSWORD
    for password in ("", "x"):
        assert not matches(NO_PASSWORD, password)


@pytest.mark.parametrize(
    ("hashed", "hashing", "verifier", "why"),
    [
        (DOCUMENTED, "rabbit_password_hashing_md5", "", "'rabbit_password_hashing_md5' is not known"),
        (DOCUMENTED, "rabbit_password_hashing_sha512", "", "36 bytes; with sha512 it has 68"),
        ("!", "rabbit_password_hashing_sha256", "", "not base 64"),
        ("\u00e4", "rabbit_password_hashing_sha256", "", "not base 64"),
        (DOCUMENTED, "argon2id", "", "no argon2 hash"),
        ("$argon2id$v=19$m=9999999,t=2,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA", "argon2id", "", "m=9999999"),
        ("$argon2i$v=19$m=19456,t=2,p=1$c29tZXNhbHQ$c29tZWhhc2hzb21laGFzaA", "argon2id", "", "is I with"),
        (DOCUMENTED, "rabbit_password_hashing_sha256", "SCRAM-SHA-1$1:a$b:c", "verifier cannot be read"),
    ],
)
def test_hashes_that_cannot_be_imported_are_refused(
    hashed: str, hashing: str, verifier: str, why: str
) -> None:
    with pytest.raises(PreconditionFailed, match=why.replace("$", r"\$")):
        import_hash(hashed, hashing, verifier)


def test_how_a_password_is_kept_does_not_show_in_the_time_that_a_wrong_one_takes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    own = make_password("sesame", 0)
    hashed = hashes_made(monkeypatch)
    for kept in (own, import_hash(DOCUMENTED), NO_PASSWORD):
        assert not matches(kept, "wrong")
    assert hashed == [hashed[0]] * 3
