"""A pytest plugin for aiormq's suite: the fixtures that start a broker, which its source distribution lacks.

The broker runs already. The environment says where: AIORMQ_URL is where it speaks AMQP, AIORMQ_TLS_PORT the
port of the same host on which it does over TLS.
"""

import os
from typing import NamedTuple

import pytest
from yarl import URL


class Container(NamedTuple):
    """The ports of the container that the suite expects the broker in."""

    ports: dict[str, int]


@pytest.fixture(scope="session")
def rabbitmq_container() -> Container:
    """Return the ports that replace RabbitMQ's two ports."""
    return Container({"5671/tcp": int(os.environ["AIORMQ_TLS_PORT"])})


@pytest.fixture(scope="session")
def amqp_direct_url() -> URL:
    """Return the URL of AMQP without TLS."""
    return URL(os.environ["AIORMQ_URL"])
