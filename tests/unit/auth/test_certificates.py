"""The user whom a certificate names, as RabbitMQ would name him."""

from datetime import UTC, datetime

import pytest
import trustme

from broker.auth.certificates import describe_certificate, expiry_of, name_in

CERTIFICATE: dict[str, object] = {
    "subject": (
        (("countryName", "CH"),),
        (("organizationName", "Example, Inc."),),
        (("commonName", "app"), ("userId", "7")),
        (("commonName", "second"),),
        (("1.2.3.4", " #x "),),
    ),
    "subjectAltName": (
        ("DNS", "app.example.org"),
        ("DNS", "other.example.org"),
        ("email", "app@example.org"),
        ("URI", "spiffe://example.org/app"),
        ("IP Address", "10.0.0.1"),
    ),
}


BROKEN = "-----BEGIN CERTIFICATE-----\nMIIBCgKCAQEA\n-----END CERTIFICATE-----"


@pytest.mark.parametrize(
    ("login_from", "san_type", "expected"),
    [
        ("common_name", "dns", "app,second"),
        ("distinguished_name", "dns", r"1.2.3.4=\ #x\ ,CN=second,CN=app+UID=7,O=Example\, Inc.,C=CH"),
        ("subject_alternative_name", "dns", "app.example.org"),
        ("subject_alternative_name", "email", "app@example.org"),
        ("subject_alternative_name", "uri", "spiffe://example.org/app"),
        ("subject_alternative_name", "ip", "10.0.0.1"),
    ],
)
def test_names(login_from: str, san_type: str, expected: str) -> None:
    assert name_in(CERTIFICATE, login_from, san_type) == expected


@pytest.mark.parametrize("login_from", ["common_name", "distinguished_name", "subject_alternative_name"])
def test_a_certificate_without_the_name(login_from: str) -> None:
    assert name_in({"subject": (), "serialNumber": "1"}, login_from) is None
    assert name_in({}, login_from) is None


def test_a_missing_name_in_a_certificate_is_none() -> None:
    assert name_in({"subject": ((("organizationName", "x"),),)}, "common_name") is None
    assert name_in({"subjectAltName": (("DNS", "x"),)}, "subject_alternative_name", "email") is None


@pytest.mark.parametrize(
    ("value", "written"),
    [
        ("#a#", r"\#a#"),
        (" a b ", r"\ a b\ "),
        ('"+,;<>\\', r"\"\+\,\;\<\>\\"),
        ("\u00e4~\n", r"\C3\A4\7E\0A"),
        ("", ""),
    ],
)
def test_escapes(value: str, written: str) -> None:
    assert name_in({"subject": ((("commonName", value),),)}, "distinguished_name") == f"CN={written}"


def test_the_expiry_of_a_certificate() -> None:
    until = datetime(2049, 12, 31, 23, 59, 58, tzinfo=UTC)
    for expires in (until, until.replace(year=2050)):  # from 2050 on the time has another form
        issued = trustme.CA().issue_cert("localhost", not_after=expires)
        pem = issued.private_key_and_cert_chain_pem.bytes().decode()
        assert expiry_of(pem) == expires


def test_a_file_without_a_certificate_has_no_expiry() -> None:
    for text in ("", "x", "-----BEGIN CERTIFICATE-----\nMAA=\n-----END CERTIFICATE-----", BROKEN):
        with pytest.raises(ValueError, match=r"certificate"):
            expiry_of(text)


def test_a_certificate_is_described_for_operators() -> None:
    shown = describe_certificate(
        {
            "subject": ((("countryName", "DE"),), (("commonName", "robot"),)),
            "issuer": ((("commonName", "authority"),),),
            "notBefore": "Jan  2 03:04:05 2026 GMT",
            "notAfter": "Dec 31 23:59:59 2027 GMT",
        }
    )
    assert shown == ("CN=robot,C=DE", "CN=authority", "2026-01-02T03:04:05Z - 2027-12-31T23:59:59Z")
