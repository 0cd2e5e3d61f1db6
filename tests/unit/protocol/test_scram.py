"""SCRAM-SHA-256: the RFC's example, wrong proofs, and whatever else a client may send."""

import base64
import hashlib
import hmac

import pytest
from scramp import ScramClient

from protocol import scram
from protocol.errors import SYNTAX_ERROR, ProtocolError
from protocol.scram import (
    ClientExchange,
    Exchange,
    derive_verifier,
    prepare_text,
    read_verifier,
    salt_password,
)
from tests.support.effort import lines_executed

# the example of RFC 7677, section 3
SALT = base64.b64decode("W22ZaJ0SNY7soEsUEjb6gQ==")
CLIENT_FIRST = b"n,,n=user,r=rOprNGfwEbeRWgbNEkqO"
SERVER_NONCE = "%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0"
SERVER_FIRST = b"r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096"
CLIENT_FINAL = (
    b"c=biws,r=rOprNGfwEbeRWgbNEkqO%hvYDpWUa2RaTCAfuxFIlj)hNlF$k0,"
    b"p=dHzbZapWIk4jUhN+Ute9ytag9zjfMHgsqmmiz7AndVQ="
)
SERVER_FINAL = b"v=6rriTRBi23WpRR/wtup+mMhUZUn/dB5nLTJRsjl95G4="
PENCIL = derive_verifier("pencil", SALT, 4096)


def begun(first: bytes = CLIENT_FIRST) -> Exchange:
    """An exchange that has challenged its client."""
    exchange = Exchange(SERVER_NONCE)
    exchange.first(first)
    exchange.challenge(PENCIL)
    return exchange


def answer(first: bytes, challenge: bytes, password: str) -> bytes:
    """Return the client's answer to a challenge."""
    header, _, bare = first.decode().partition(",")
    bound, _, bare = bare.partition(",")
    fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
    salted = hashlib.pbkdf2_hmac("sha256", password.encode(), base64.b64decode(fields["s"]), int(fields["i"]))
    key = hmac.digest(salted, b"Client Key", "sha256")
    unsigned = f"c={base64.b64encode(f'{header},{bound},'.encode()).decode()},r={fields['r']}"
    signed = f"{bare},{challenge.decode()},{unsigned}".encode()
    signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
    proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
    return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()


def test_the_example_of_rfc_7677() -> None:
    exchange = Exchange(SERVER_NONCE)
    exchange.first(CLIENT_FIRST)
    assert exchange.user == "user"
    assert exchange.challenge(PENCIL) == SERVER_FIRST
    assert exchange.final(CLIENT_FINAL) == SERVER_FINAL


def test_a_verifier_survives_being_written_down() -> None:
    assert read_verifier(str(PENCIL)) == PENCIL
    assert "pencil" not in str(PENCIL)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "SCRAM-SHA-1$4096:W22Z$a:b",
        str(PENCIL).replace("4096", "4095"),
        str(PENCIL).replace("4096", "99999999"),
        str(PENCIL)[:-4],
        str(PENCIL).replace("W22ZaJ0SNY7soEsUEjb6gQ==", "?"),
        str(PENCIL) + ":x",
    ],
)
def test_invalid_verifiers(text: str) -> None:
    with pytest.raises(ValueError, match=r"\w"):
        read_verifier(text)


@pytest.mark.parametrize("password", ["Pencil", "", "pencil "])
def test_a_wrong_password(password: str) -> None:
    exchange = Exchange("nonce")
    exchange.first(CLIENT_FIRST)
    challenge = exchange.challenge(PENCIL)
    assert exchange.final(answer(CLIENT_FIRST, challenge, password)) is None


def test_the_own_client_of_these_tests_is_right() -> None:
    exchange = Exchange("nonce")
    exchange.first(CLIENT_FIRST)
    challenge = exchange.challenge(PENCIL)
    assert exchange.final(answer(CLIENT_FIRST, challenge, "pencil")) is not None


def test_a_proof_for_another_challenge_is_worthless() -> None:
    exchange = Exchange("another nonce".replace(" ", "-"))
    exchange.first(CLIENT_FIRST)
    exchange.challenge(PENCIL)
    assert exchange.final(CLIENT_FINAL) is None


@pytest.mark.parametrize(
    "first",
    [
        b"",
        b"n,,",
        b"n=user,r=x",
        b"p=tls-unique,,n=user,r=x",
        b"n,,m=mandatory,n=user,r=x",
        b"n,,n=,r=x",
        b"n,,n=us=er,r=x",
        b"n,,n=user,r=",
        b"n,,n=user,r=a\xc3\xa4",
        b"n,a=other,n=user,r=x",
        b"z,,n=user,r=x",
    ],
)
def test_an_invalid_first_message_is_refused(first: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        Exchange("nonce").first(first)
    assert caught.value.code == SYNTAX_ERROR


@pytest.mark.parametrize(
    "final",
    [
        b"",
        b"c=biws",
        CLIENT_FINAL.replace(b"biws", b"eSws"),  # y,, instead of n,,
        CLIENT_FINAL.replace(b"biws", b"?"),
        CLIENT_FINAL[:-3],
        CLIENT_FINAL + b"\xff",
    ],
)
def test_an_invalid_final_message_is_refused(final: bytes) -> None:
    with pytest.raises(ProtocolError) as caught:
        begun().final(final)
    assert caught.value.code == SYNTAX_ERROR


@pytest.mark.parametrize(
    "final",
    [
        CLIENT_FINAL.replace(b"rOpr", b"rOpq"),
        CLIENT_FINAL[:-4] + b"VQ==",
        CLIENT_FINAL.rpartition(b"p=")[0] + b"p=",
    ],
)
def test_a_final_message_with_a_wrong_proof_is_refused(final: bytes) -> None:
    assert begun().final(final) is None


def test_a_final_message_before_the_challenge_is_a_protocol_error() -> None:
    exchange = Exchange("nonce")
    exchange.first(CLIENT_FIRST)
    with pytest.raises(ProtocolError):
        exchange.final(CLIENT_FINAL)


@pytest.mark.parametrize("first", [b"y,,n=user,r=x", b"n,a=user,n=user,r=x", b"n,,n=user,r=x,extra=1"])
def test_first_messages_of_every_form(first: bytes) -> None:
    exchange = Exchange("nonce")
    exchange.first(first)
    assert exchange.final(answer(first, exchange.challenge(PENCIL), "pencil")) is not None


@pytest.mark.parametrize("first", ["n,,n={},r=x", "n,a={},n=user,r=x"])
def test_a_name_that_no_user_can_have(first: str) -> None:
    with pytest.raises(ProtocolError, match="a user name of 256 bytes, at most 255 are allowed") as caught:
        Exchange("nonce").first(first.format("\u00e4" * 128).encode())
    assert caught.value.code == SYNTAX_ERROR


def test_a_name_that_preparation_makes_longer_takes_little_work() -> None:
    message = "n,,n={},r=x".format("\ufdfa" * 85).encode()  # each is 18 characters when it has been prepared
    assert lines_executed(lambda: Exchange("nonce").first(message)) < 2000


def test_a_name_with_commas_and_equal_signs() -> None:
    exchange = Exchange("nonce")
    exchange.first(b"n,,n=a=2Cb=3Dc,r=x")
    assert exchange.user == "a,b=c"


@pytest.mark.parametrize(
    ("text", "expected"),  # the examples of RFC 4013, section 3; what it forbids stays as it is
    [
        ("I\u00adX", "IX"),
        ("user", "user"),
        ("USER", "USER"),
        ("\u00aa", "a"),
        ("\u2168", "IX"),
        ("\u0007", "\u0007"),
        ("\u06271", "\u06271"),
        ("a\u00a0b", "a b"),
        ("", ""),
        ("\udc80", "\udc80"),
    ],
)
def test_preparation(text: str, expected: str) -> None:
    assert prepare_text(text) == expected


def test_forms_of_one_password_are_one_password() -> None:
    assert derive_verifier("I\u00adX", SALT, 4096) == derive_verifier("\u2168", SALT, 4096)
    assert scram.ITERATIONS_MIN == 4096


def test_a_client_of_another_library_logs_in() -> None:
    client = ScramClient(["SCRAM-SHA-256"], "us=er,", "pencil")
    exchange = begun(client.get_client_first().encode())
    client.set_server_first(exchange.challenge(PENCIL).decode())
    answer = exchange.final(client.get_client_final().encode())
    assert answer is not None
    client.set_server_final(answer.decode())

    assert exchange.user == "us=er,"


def test_a_client_of_another_library_with_a_wrong_password_is_refused() -> None:
    client = ScramClient(["SCRAM-SHA-256"], "user", "pen")
    exchange = begun(client.get_client_first().encode())
    client.set_server_first(exchange.challenge(PENCIL).decode())

    assert exchange.final(client.get_client_final().encode()) is None


def challenged(message: bytes = SERVER_FIRST) -> ClientExchange:
    """A client's exchange that has been challenged."""
    exchange = ClientExchange("user", "rOprNGfwEbeRWgbNEkqO")
    exchange.take_challenge(message)
    return exchange


def test_the_client_of_the_example_of_rfc_7677() -> None:
    exchange = ClientExchange("user", "rOprNGfwEbeRWgbNEkqO")
    assert exchange.first() == CLIENT_FIRST
    exchange.take_challenge(SERVER_FIRST)
    assert (exchange.salt, exchange.iterations) == (SALT, 4096)
    salted = salt_password("pencil", exchange.salt, exchange.iterations)
    assert exchange.final(salted) == CLIENT_FINAL
    assert exchange.check(SERVER_FINAL)
    assert not exchange.check(SERVER_FINAL.replace(b"6rri", b"7rri"))
    assert not challenged().check(SERVER_FINAL), "the client has proved nothing"


@pytest.mark.parametrize("name", ["=,", "ü", "\u2168"])
def test_both_sides_understand_each_name(name: str) -> None:
    client, server = ClientExchange(name, "abc"), Exchange("def")
    server.first(client.first())
    assert server.user == prepare_text(name)
    client.take_challenge(server.challenge(PENCIL))
    proof = server.final(client.final(salt_password("pencil", client.salt, client.iterations)))
    assert proof is not None
    assert client.check(proof)


@pytest.mark.parametrize(
    ("message", "reason"),
    [
        (b"", "the challenge of the server is malformed"),
        (b"e=other-error", "the challenge of the server is malformed"),
        (SERVER_FIRST.replace(b"rOpr", b"rOpq"), "the nonce of the server is malformed"),
        (b"r=rOprNGfwEbeRWgbNEkqO,s=W22ZaJ0SNY7soEsUEjb6gQ==,i=4096", "the nonce of the server is malformed"),
        (SERVER_FIRST.replace(b"gQ==", b"gQ="), "the salt is malformed"),
        (SERVER_FIRST.replace(b"4096", b"4095"), "the server demands 4095 iterations, allowed: 4096 to"),
        (SERVER_FIRST.replace(b"4096", b"10000001"), "the server demands 10000001 iterations"),
    ],
)
def test_the_client_refuses_other_challenges(message: bytes, reason: str) -> None:
    with pytest.raises(ProtocolError, match=reason):
        challenged(message)
    with pytest.raises(ProtocolError, match="the final message of the server is malformed"):
        challenged().check(b"e=invalid-proof")
