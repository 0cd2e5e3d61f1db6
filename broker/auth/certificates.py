"""The name that a client's certificate gives: the user whom EXTERNAL logs in. [RabbitMQ ssl_cert_login_from]

Certificates come as `ssl.SSLSocket.getpeercert` describes them. Names are written as RabbitMQ writes names,
so that users keep their names.
"""

from collections.abc import Mapping
from datetime import UTC, datetime
from ssl import PEM_cert_to_DER_cert, cert_time_to_seconds
from typing import Final, NamedTuple, cast

COMMON_NAME: Final = "common_name"
DISTINGUISHED_NAME: Final = "distinguished_name"
ALTERNATIVE_NAME: Final = "subject_alternative_name"

ALTERNATIVE_TYPES: Final = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}

NAMES: Final = ("subject", "issuer")
VALIDITY: Final = ("notBefore", "notAfter")

_BEGIN: Final = "-----BEGIN CERTIFICATE-----"
_END: Final = "-----END CERTIFICATE-----"
_VERSION: Final = 0xA0  # tags
_UTC_TIME: Final = 0x17

SHORT_NAMES: Final = {
    "surname": "SN",
    "givenName": "GIVENNAME",
    "initials": "INITIALS",
    "generationQualifier": "GENERATIONQUALIFIER",
    "commonName": "CN",
    "localityName": "L",
    "stateOrProvinceName": "ST",
    "organizationName": "O",
    "organizationalUnitName": "OU",
    "title": "TITLE",
    "countryName": "C",
    "serialNumber": "SERIALNUMBER",
    "pseudonym": "PSEUDONYM",
    "domainComponent": "DC",
    "emailAddress": "EMAILADDRESS",
    "streetAddress": "STREET",
    "userId": "UID",
}
"""The abbreviations of kinds of attributes in RFC 4514; other kinds have numbers."""

Attributes = tuple[tuple[str, str], ...]


class PeerCertificate(NamedTuple):
    """The names and the validity of a verified certificate, for operators; all are empty without one."""

    subject: str
    issuer: str
    validity: str


NO_CERTIFICATE: Final = PeerCertificate("", "", "")


def describe_certificate(certificate: Mapping[str, object]) -> PeerCertificate:
    """Describe a verified certificate; the validity is two times in UTC. [RabbitMQ peer_cert_*]"""
    subject, issuer = (cast("tuple[Attributes, ...]", certificate.get(name, ())) for name in NAMES)
    times = (_format_time(str(certificate[name])) for name in VALIDITY if name in certificate)
    return PeerCertificate(distinguished_name(subject), distinguished_name(issuer), " - ".join(times))


def expiry_of(pem: str) -> datetime:
    """Return when the first certificate in a PEM text expires. [RFC 5280 4.1.2.5]

    Raises ValueError: there is no certificate that can be read.
    """
    start, end = pem.find(_BEGIN), pem.find(_END)
    if start < 0 or end < start:
        raise ValueError("no certificate in PEM")
    try:
        whole = PEM_cert_to_DER_cert(pem[start : end + len(_END)] + "\n")
        parts = _elements(_elements(_elements(whole)[0][1])[0][1])
        validity = parts[4 if parts[0][0] == _VERSION else 3][1]
        kind, text = _elements(validity)[1]
        year = "%y" if kind == _UTC_TIME else "%Y"
        return datetime.strptime(text.decode(), f"{year}%m%d%H%M%SZ").replace(tzinfo=UTC)
    except (IndexError, ValueError) as error:
        raise ValueError(f"the certificate cannot be read: {error}") from error


def _elements(content: bytes) -> list[tuple[int, bytes]]:
    """Return the tags and contents of the DER elements that follow each other. [X.690 8.1]"""
    found: list[tuple[int, bytes]] = []
    p = 0
    while p < len(content):
        tag, length = content[p], content[p + 1]
        p += 2
        if length >= 0x80:
            size = length & 0x7F
            length = int.from_bytes(content[p : p + size])
            p += size
        if p + length > len(content):
            raise ValueError("an element is longer than its container")
        found.append((tag, content[p : p + length]))
        p += length
    return found


def _format_time(text: str) -> str:
    return datetime.fromtimestamp(cert_time_to_seconds(text), UTC).strftime("%Y-%m-%dT%H:%M:%SZ")


def name_in(certificate: Mapping[str, object], login_from: str, san_type: str = "dns") -> str | None:
    """The name of the user in a verified certificate; None if the certificate has no name of this kind."""
    if login_from == ALTERNATIVE_NAME:
        kind = ALTERNATIVE_TYPES[san_type]
        names = cast("Attributes", certificate.get("subjectAltName", ()))
        return next((value for each, value in names if each == kind), None)
    subject = cast("tuple[Attributes, ...]", certificate.get("subject", ()))
    if login_from == COMMON_NAME:
        common_names = [value for attributes in subject for kind, value in attributes if kind == "commonName"]
        return ",".join(common_names) or None
    return distinguished_name(subject) or None


def distinguished_name(subject: tuple[Attributes, ...]) -> str:
    """A subject as text, the most specific part first. [RFC 4514]"""
    return ",".join(
        "+".join(f"{SHORT_NAMES.get(kind, kind)}={_escaped(value)}" for kind, value in attributes)
        for attributes in reversed(subject)
    )


def _escaped(value: str) -> str:
    """Return a value with special characters, and all but printable ASCII, escaped."""
    last = len(value) - 1
    written = []
    for position, character in enumerate(value):
        special = '"+,;<>\\' + (" #" if position == 0 else " " if position == last else "")
        if character in special:
            written.append(f"\\{character}")
        elif " " <= character < "~":
            written.append(character)
        else:
            written += [f"\\{octet:02X}" for octet in character.encode()]
    return "".join(written)
