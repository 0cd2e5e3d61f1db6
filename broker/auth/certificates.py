"""The name that a client's certificate gives: the user whom EXTERNAL logs in. [RabbitMQ ssl_cert_login_from]

Certificates come as `ssl.SSLSocket.getpeercert` describes them. Names are written as RabbitMQ writes names,
so that users keep their names.
"""

from collections.abc import Mapping
from typing import Final, cast

COMMON_NAME: Final = "common_name"
DISTINGUISHED_NAME: Final = "distinguished_name"
ALTERNATIVE_NAME: Final = "subject_alternative_name"

ALTERNATIVE_TYPES: Final = {"dns": "DNS", "email": "email", "ip": "IP Address", "uri": "URI"}

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
