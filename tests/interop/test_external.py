"""Certificates of clients: whom they name, and how that logs in. [RFC 4422 appendix A, EXTERNAL]"""

import importlib
from pathlib import Path
from typing import Any

import pika
import pika.exceptions
import pytest
from pika.credentials import ExternalCredentials

from broker.auth.passwords import NO_PASSWORD
from broker.auth.users import Users
from broker.core.broker import Broker
from tests.support.auth.broker_with_users import ALL, folder_with_users, quick_password
from tests.support.daemon.certificates import Certificates, connect, secure_address
from tests.support.daemon.daemon import DaemonStarter


def people(users: Users, broker: Broker) -> None:
    """A robot without a password, beside guest."""
    broker.declare_vhost("/")
    for name, password in (
        ("guest", quick_password("guest")),
        ("robot", NO_PASSWORD),
        ("CN=robot,O=x", NO_PASSWORD),
    ):
        users.add(name, password)
        users.permit(name, "/", ALL, ALL, ALL)


def test_external_logs_in_whom_the_certificate_names(
    start_daemon: DaemonStarter, certificates: Certificates, tmp_path: Path
) -> None:
    options = certificates.options("--tls-verify", "optional", "--tls-login-from", "common_name")
    daemon = start_daemon(*options, data_dir=folder_with_users(tmp_path / "data", people))
    robot = certificates.trusting(certificates.client("robot"))
    with connect(daemon, robot, credentials=ExternalCredentials()) as connection:
        connection.channel()
    daemon.log.wait_for(r"connection opened.*user=robot")
    with pytest.raises(pika.exceptions.AuthenticationError, match="EXTERNAL"):
        connect(daemon, certificates.trusting(), credentials=ExternalCredentials())
    with connect(daemon, robot) as connection:  # a password does as well
        connection.channel()
    daemon.log.wait_for(r"connection opened.*user=guest")


def test_a_certificate_that_names_no_user_leaves_it_to_the_password(
    start_daemon: DaemonStarter, certificates: Certificates, tmp_path: Path
) -> None:
    options = certificates.options("--tls-verify", "required", "--tls-login-from", "common_name")
    daemon = start_daemon(*options, data_dir=folder_with_users(tmp_path / "data", people))
    nobody = certificates.client("nobody")
    with pytest.raises(pika.exceptions.AuthenticationError, match="EXTERNAL"):
        connect(daemon, certificates.trusting(nobody), credentials=ExternalCredentials())
    daemon.log.wait_for(r"EXTERNAL not offered.*certificate=nobody")
    address = secure_address(daemon)
    secure = {"ca_certs": str(certificates.folder / "ca.pem"), "certfile": str(nobody)}
    amqp: Any = importlib.import_module("amqp")  # without types; it prefers EXTERNAL to passwords
    with amqp.Connection(f"{address.host}:{address.port}", ssl=secure) as connection:
        connection.channel()
    daemon.log.wait_for(r"connection opened.*user=guest")


@pytest.mark.parametrize(
    ("options", "names"),
    [
        (("--tls-login-from", "subject_alternative_name"), ("robot",)),
        (
            ("--tls-login-from", "subject_alternative_name", "--tls-login-san-type", "email"),
            ("other.example.org", "robot@example.org"),
        ),
    ],
)
def test_external_by_alternative_names(
    start_daemon: DaemonStarter,
    certificates: Certificates,
    tmp_path: Path,
    options: tuple[str, ...],
    names: tuple[str, ...],
) -> None:
    def fill(users: Users, broker: Broker) -> None:
        people(users, broker)
        users.put(names[-1], NO_PASSWORD)
        users.permit(names[-1], "/", ALL, ALL, ALL)

    more = certificates.options("--tls-verify", "required", *options)
    daemon = start_daemon(*more, data_dir=folder_with_users(tmp_path / "data", fill))
    context = certificates.trusting(certificates.client("whoever", *names))
    with connect(daemon, context, credentials=ExternalCredentials()) as connection:
        connection.channel()
    daemon.log.wait_for(rf"connection opened.*user={names[-1]}")


def test_a_certificate_that_is_not_asked_for_gives_no_name(
    start_daemon: DaemonStarter, certificates: Certificates, tmp_path: Path
) -> None:
    data = folder_with_users(tmp_path / "data", people)
    daemon = start_daemon(*certificates.options("--tls-login-from", "common_name"), data_dir=data)
    for client in (certificates.client("robot"), certificates.foreign("robot")):
        with pytest.raises(pika.exceptions.AuthenticationError, match="EXTERNAL"):
            connect(daemon, certificates.trusting(client), credentials=ExternalCredentials())
