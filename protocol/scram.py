"""SCRAM-SHA-256: verifiers of passwords, and both sides of the exchange. [RFC 5802, RFC 7677]

The module looks up nothing and uses no random numbers. The caller finds the verifier of the user, and makes
the nonce. Channel binding (SCRAM-SHA-256-PLUS) is not offered.
"""

import base64
import binascii
import hashlib
import hmac
import re
import stringprep
import unicodedata
from typing import Final, NamedTuple, final

from protocol.errors import SYNTAX_ERROR, ProtocolError

MECHANISM: Final = "SCRAM-SHA-256"
ITERATIONS_MIN: Final = 4096
ITERATIONS_MAX: Final = 10_000_000
NAME_BYTES_MAX: Final = 255  # a short string of AMQP: no user has a longer name

_KEY_BYTES: Final = 32
_BYTES: Final = "surrogateescape"
_NONCE: Final = re.compile(r"[!-+\--~]{1,512}")  # printable ASCII without the comma
_FORBIDDEN: Final = (
    stringprep.in_table_c12,
    stringprep.in_table_c21_c22,
    stringprep.in_table_c3,
    stringprep.in_table_c4,
    stringprep.in_table_c5,
    stringprep.in_table_c6,
    stringprep.in_table_c7,
    stringprep.in_table_c8,
    stringprep.in_table_c9,
)


class Verifier(NamedTuple):
    """The verifier of a password: enough to check a proof, not enough to make one. [RFC 5802 3]"""

    salt: bytes
    iterations: int
    stored_key: bytes
    server_key: bytes

    def __str__(self) -> str:
        """Return `SCRAM-SHA-256$<iterations>:<salt>$<stored key>:<server key>`, keys and salt in base 64."""
        return (
            f"{MECHANISM}${self.iterations}:{_b64(self.salt)}${_b64(self.stored_key)}:{_b64(self.server_key)}"
        )


def derive_verifier(password: str, salt: bytes, iterations: int) -> Verifier:
    """Return the verifier of a password. The duration depends on `iterations`."""
    salted = salt_password(password, salt, iterations)
    client_key = hmac.digest(salted, b"Client Key", "sha256")
    stored_key = hashlib.sha256(client_key).digest()
    return Verifier(salt, iterations, stored_key, hmac.digest(salted, b"Server Key", "sha256"))


def salt_password(password: str, salt: bytes, iterations: int) -> bytes:
    """Return the salted password, from which both sides derive their keys. [RFC 5802 3]

    The duration depends on `iterations`.
    """
    prepared = prepare_text(password).encode("utf-8", "surrogatepass")
    return hashlib.pbkdf2_hmac("sha256", prepared, salt, iterations)


def read_verifier(text: str) -> Verifier:
    """Read the text of a verifier. Raises ValueError."""
    match = re.fullmatch(r"SCRAM-SHA-256\$(\d{1,8}):([^$:]+)\$([^$:]+):([^$:]+)", text, re.ASCII)
    if match is None:
        raise ValueError("expected the form SCRAM-SHA-256$iterations:salt$stored key:server key")
    salt, stored_key, server_key = (_unb64(part) for part in match.group(2, 3, 4))
    iterations = int(match[1])
    if not salt or len(stored_key) != _KEY_BYTES or len(server_key) != _KEY_BYTES:
        raise ValueError("the salt is empty, or a key does not have 32 bytes")
    if not ITERATIONS_MIN <= iterations <= ITERATIONS_MAX:
        raise ValueError(f"{iterations} iterations, allowed: {ITERATIONS_MIN} to {ITERATIONS_MAX}")
    return Verifier(salt, iterations, stored_key, server_key)


def prepare_text(text: str) -> str:
    """Return a name or password after SASLprep; a text that SASLprep forbids is unchanged. [RFC 4013]

    A forbidden text is compared octet by octet, as PostgreSQL does.
    """
    mapped = "".join(
        " " if stringprep.in_table_c12(character) else character
        for character in text
        if not stringprep.in_table_b1(character)
    )
    normalized = unicodedata.normalize("NFKC", mapped)
    characters = set(normalized)  # a short text may become long, with few different characters
    for character in characters:
        if stringprep.in_table_a1(character) or any(forbids(character) for forbids in _FORBIDDEN):
            return text
    if any(stringprep.in_table_d1(character) for character in characters):
        ends = stringprep.in_table_d1(normalized[0]) and stringprep.in_table_d1(normalized[-1])
        if not ends or any(stringprep.in_table_d2(character) for character in characters):
            return text
    return normalized


@final
class Exchange:
    """The exchange of a log-in: `first`, then `challenge`, then `final`. [RFC 5802 5]

    `user`: the user name that the client sends, known after `first`. All three methods raise
    ProtocolError(SYNTAX_ERROR) for a malformed message, but not for a false proof.
    """

    def __init__(self, nonce: str) -> None:
        """`nonce`: printable ASCII without commas that cannot be guessed, a part of the exchange's nonce."""
        self.user = ""
        self._nonce = nonce
        self._header = b""
        self._bare = ""
        self._first = ""
        self._verifier: Verifier | None = None

    def first(self, message: bytes) -> None:
        """Take client-first-message."""
        text = _text(message)
        match = re.fullmatch(
            r"((n|y|p=[^,]*),(?:a=([^,]*))?,)((?:(m=[^,]*),)?n=([^,]*),r=([^,]*)(?:,.*)?)", text
        )
        if match is None:
            raise _malformed("the first message")
        header, binding, authorization, self._bare, extension, name, nonce = match.groups()
        if binding.startswith("p"):
            raise ProtocolError(SYNTAX_ERROR, f"{MECHANISM} does not support channel binding")
        if extension is not None:
            raise ProtocolError(SYNTAX_ERROR, f"{MECHANISM} extension {extension!r} is not supported")
        if not _NONCE.fullmatch(nonce):
            raise _malformed("the nonce")
        self.user = _user(name)
        if authorization and _user(authorization) != self.user:
            raise ProtocolError(SYNTAX_ERROR, f"{self.user!r} cannot log in as {_name(authorization)!r}")
        self._header = header.encode(errors=_BYTES)
        self._nonce = nonce + self._nonce

    def challenge(self, verifier: Verifier) -> bytes:
        """Return server-first-message, for the user's verifier."""
        self._verifier = verifier
        self._first = f"r={self._nonce},s={_b64(verifier.salt)},i={verifier.iterations}"
        return self._first.encode()

    def final(self, message: bytes) -> bytes | None:
        """Take client-final-message; return server-final-message, None if the proof is false."""
        text = _text(message)
        match = re.fullmatch(r"(c=([^,]*),r=([^,]*)(?:,.*)?),p=([^,]*)", text)
        if match is None or self._verifier is None:
            raise _malformed("the final message")
        unsigned, binding, nonce, proof_text = match.groups()
        proof = _decoded(proof_text, "the proof")
        if _decoded(binding, "the channel binding") != self._header:
            raise ProtocolError(
                SYNTAX_ERROR, f"{MECHANISM}: the channel binding differs from the first message"
            )
        verifier = self._verifier
        signed = f"{self._bare},{self._first},{unsigned}".encode(errors=_BYTES)
        signature = hmac.digest(verifier.stored_key, signed, "sha256")
        key = bytes(a ^ b for a, b in zip(proof, signature, strict=False))
        proof_matches = hmac.compare_digest(hashlib.sha256(key).digest(), verifier.stored_key)
        nonce_matches = hmac.compare_digest(nonce.encode(errors=_BYTES), self._nonce.encode())
        if not proof_matches or not nonce_matches or len(proof) != _KEY_BYTES:
            return None
        return b"v=" + base64.b64encode(hmac.digest(verifier.server_key, signed, "sha256"))


@final
class ClientExchange:
    """The client's side of a log-in: `first`, `take_challenge`, `final`, then `check`. [RFC 5802 5]

    `salt` and `iterations`: for `salt_password`, known after `take_challenge`. The methods raise
    ProtocolError(SYNTAX_ERROR) for a malformed message of the server.
    """

    def __init__(self, user: str, nonce: str) -> None:
        """`nonce`: printable ASCII without commas that cannot be guessed."""
        self.salt = b""
        self.iterations = 0
        self._nonce = nonce
        name = prepare_text(user).replace("=", "=3D").replace(",", "=2C")
        self._bare = f"n={name},r={nonce}"
        self._challenge = ""
        self._proof = b""  # the server must send it

    @property
    def is_challenged(self) -> bool:
        """Whether the server has sent its first message."""
        return self._challenge != ""

    def first(self) -> bytes:
        """Return client-first-message."""
        return b"n,," + self._bare.encode(errors=_BYTES)

    def take_challenge(self, message: bytes) -> None:
        """Take server-first-message."""
        text = _text(message)
        match = re.fullmatch(r"r=([^,]*),s=([^,]*),i=([0-9]{1,8})(?:,.*)?", text, re.ASCII)
        if match is None:
            raise _malformed("the challenge of the server")
        nonce = match[1]
        if not nonce.startswith(self._nonce) or nonce == self._nonce or not _NONCE.fullmatch(nonce):
            raise _malformed("the nonce of the server")
        self.salt = _decoded(match[2], "the salt")
        self.iterations = int(match[3])
        if not ITERATIONS_MIN <= self.iterations <= ITERATIONS_MAX:
            raise ProtocolError(
                SYNTAX_ERROR,
                f"{MECHANISM}: the server demands {self.iterations} iterations, "
                f"allowed: {ITERATIONS_MIN} to {ITERATIONS_MAX}",
            )
        self._nonce = nonce
        self._challenge = text

    def final(self, salted: bytes) -> bytes:
        """Return client-final-message, for the salted password."""
        unsigned = f"c=biws,r={self._nonce}"  # biws: no channel binding
        signed = f"{self._bare},{self._challenge},{unsigned}".encode(errors=_BYTES)
        key = hmac.digest(salted, b"Client Key", "sha256")
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        self._proof = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        return f"{unsigned},p={_b64(proof)}".encode(errors=_BYTES)

    def check(self, message: bytes) -> bool:
        """Take server-final-message. Return whether the server has proved that it knows the password."""
        match = re.fullmatch(r"v=([^,]*)(?:,.*)?", _text(message))
        if match is None:
            raise _malformed("the final message of the server")
        return self._proof != b"" and hmac.compare_digest(_decoded(match[1], "the proof"), self._proof)


def _text(message: bytes) -> str:
    """Return a message as text. Bytes that are not UTF-8 become surrogates: no user has such a name."""
    return message.decode(errors=_BYTES)


def _user(escaped: str) -> str:
    """Return the user of an escaped name. Raises ProtocolError for a long name: the peer may be unknown."""
    name = _name(escaped)
    size = len(name.encode(errors=_BYTES))
    if size > NAME_BYTES_MAX:
        raise ProtocolError(
            SYNTAX_ERROR, f"{MECHANISM}: a user name of {size} bytes, at most {NAME_BYTES_MAX} are allowed"
        )
    return prepare_text(name)


def _name(escaped: str) -> str:
    """Return the name of an escaped name, in which commas and equal signs are =2C and =3D."""
    if re.search("=(?!2C|3D)", escaped) or not escaped:
        raise _malformed("the user name")
    return escaped.replace("=2C", ",").replace("=3D", "=")


def _malformed(part: str) -> ProtocolError:
    return ProtocolError(SYNTAX_ERROR, f"{MECHANISM}: {part} is malformed")


def _decoded(text: str, part: str) -> bytes:
    try:
        return _unb64(text)
    except ValueError as error:
        raise _malformed(part) from error


def _b64(data: bytes) -> str:
    return base64.b64encode(data).decode()


def _unb64(text: str) -> bytes:
    try:
        return base64.b64decode(text.encode(), validate=True)
    except binascii.Error as error:
        raise ValueError(f"not base 64: {error}") from error
