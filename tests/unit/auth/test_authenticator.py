"""Authentication: right and wrong passwords, loopback, and remembered passwords."""

import pytest

from broker.auth.authenticator import Authenticator
from broker.auth.passwords import Password, hash_password, matches
from broker.auth.users import Users
from broker.core.ports import MessageStore
from tests.support.effort import hashes_made


@pytest.fixture(scope="module")
def sesame() -> Password:
    return Password(hash_password("sesame"))


@pytest.fixture
def users(sesame: Password) -> Users:
    users = Users(MessageStore())
    users.add("ann", sesame)
    users.add("guest", sesame, loopback_only=True)
    return users


@pytest.fixture
def auth(users: Users) -> Authenticator:
    return Authenticator(users)


def verify(auth: Authenticator, user: str, password: str, loopback: bool) -> bool:
    """The check of a password as `PasswordChecks` makes it."""
    return matches(auth.stored_password(user), password) and auth.remember(user, password, loopback)


def test_the_hash_is_argon2id_with_owasp_parameters_and_a_salt(sesame: Password) -> None:
    assert sesame.hash.startswith("$argon2id$v=19$m=19456,t=2,p=1$")
    assert hash_password("sesame") != sesame.hash


def test_passwords(sesame: Password) -> None:
    assert matches(sesame, "sesame")
    assert not matches(sesame, "Sesame")
    assert not matches(sesame, "")
    assert not matches(Password(""), "sesame")
    assert not matches(Password("$argon2id$nonsense"), "sesame")


def test_a_password_of_any_octets() -> None:
    strange = b"\xff\x00\xfe".decode("utf-8", "surrogateescape")
    assert matches(Password(hash_password(strange)), strange)


def test_verify(auth: Authenticator) -> None:
    assert verify(auth, "ann", "sesame", loopback=False)
    assert not verify(auth, "ann", "wrong", loopback=True)
    assert not verify(auth, "nobody", "sesame", loopback=True)


def test_nothing_is_remembered_before_a_success(auth: Authenticator) -> None:
    assert not auth.is_remembered("ann", "sesame", loopback=True)
    assert not verify(auth, "ann", "wrong", loopback=True)
    assert not auth.is_remembered("ann", "wrong", loopback=True)
    assert not auth.is_remembered("nobody", "sesame", loopback=True)


def test_a_success_is_remembered_for_this_user_and_password(auth: Authenticator) -> None:
    verify(auth, "ann", "sesame", loopback=True)
    assert auth.is_remembered("ann", "sesame", loopback=False)
    assert not auth.is_remembered("ann", "Sesame", loopback=False)
    assert not auth.is_remembered("guest", "sesame", loopback=True)


def test_a_wrong_password_does_not_forget_the_remembered_password(auth: Authenticator) -> None:
    verify(auth, "ann", "sesame", loopback=True)
    assert not verify(auth, "ann", "wrong", loopback=True)
    assert auth.is_remembered("ann", "sesame", loopback=True)


def test_a_changed_password_forgets_the_remembered_password(auth: Authenticator, users: Users) -> None:
    verify(auth, "ann", "sesame", loopback=True)
    users.put("ann", Password(hash_password("new")))
    assert not auth.is_remembered("ann", "sesame", loopback=True)
    assert not verify(auth, "ann", "sesame", loopback=True)
    assert verify(auth, "ann", "new", loopback=True)
    users.delete("ann")
    assert not auth.is_remembered("ann", "new", loopback=True)
    users.add("ann", Password(hash_password("other")))
    assert not auth.is_remembered("ann", "new", loopback=True)


def test_tags_and_permissions_do_not_forget(auth: Authenticator, users: Users) -> None:
    verify(auth, "ann", "sesame", loopback=True)
    users.put("ann", None, ("monitoring",))
    users.permit("ann", "/", "", "", "")
    assert auth.is_remembered("ann", "sesame", loopback=True)


def test_loopback_only(auth: Authenticator) -> None:
    assert verify(auth, "guest", "sesame", loopback=True)
    assert auth.is_remembered("guest", "sesame", loopback=True)
    assert not auth.is_remembered("guest", "sesame", loopback=False)
    assert not verify(auth, "guest", "sesame", loopback=False)


def test_remembered_passwords_are_keyed_hashes(users: Users) -> None:
    digests = set()
    for _ in range(2):  # two processes
        auth = Authenticator(users)
        verify(auth, "ann", "sesame", loopback=True)
        user = users.get("ann")
        assert user is not None
        assert b"sesame" not in user.remembered
        digests.add(user.remembered)
        assert auth.is_remembered("ann", "sesame", loopback=True)
    assert len(digests) == 2


def test_the_digest_separates_name_and_password(auth: Authenticator, users: Users) -> None:
    users.add("an", Password(hash_password("nsesame")))
    assert auth._digest("ann", "sesame") != auth._digest("an", "nsesame")


def test_an_unknown_user_costs_as_much_as_a_wrong_password(
    auth: Authenticator, monkeypatch: pytest.MonkeyPatch
) -> None:
    hashed = hashes_made(monkeypatch)
    for user in ("nobody", "ann"):
        assert not verify(auth, user, "wrong", loopback=True)
    unknown, known = hashed
    assert unknown == known


def test_a_remembered_password_is_not_hashed(auth: Authenticator, monkeypatch: pytest.MonkeyPatch) -> None:
    verify(auth, "ann", "sesame", loopback=True)
    hashed = hashes_made(monkeypatch)
    assert auth.is_remembered("ann", "sesame", loopback=True)
    assert hashed == []
