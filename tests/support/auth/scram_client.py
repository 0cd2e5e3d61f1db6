"""The client's side of SCRAM-SHA-256. [RFC 5802]"""

import base64
import hashlib
import hmac


class ScramClient:
    """The client's messages of a single log-in."""

    def __init__(self, user: str, password: str, nonce: str = "client") -> None:
        self.bare = f"n={user},r={nonce}"
        self.nonce = nonce
        self.password = password
        self.expected = b""  # the server's expected proof

    def first(self) -> bytes:
        """The first message."""
        return f"n,,{self.bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        """The answer to the server's first message."""
        fields = dict(field.split("=", 1) for field in challenge.decode().split(","))
        assert fields["r"].startswith(self.nonce)
        assert len(fields["r"]) >= len(self.nonce) + 16
        salt, iterations = base64.b64decode(fields["s"]), int(fields["i"])
        salted = hashlib.pbkdf2_hmac("sha256", self.password.encode(), salt, iterations)
        key = hmac.digest(salted, b"Client Key", "sha256")
        unsigned = f"c=biws,r={fields['r']}"
        signed = f"{self.bare},{challenge.decode()},{unsigned}".encode()
        signature = hmac.digest(hashlib.sha256(key).digest(), signed, "sha256")
        proof = bytes(a ^ b for a, b in zip(key, signature, strict=True))
        server = hmac.digest(hmac.digest(salted, b"Server Key", "sha256"), signed, "sha256")
        self.expected = b"v=" + base64.b64encode(server)
        return f"{unsigned},p={base64.b64encode(proof).decode()}".encode()
