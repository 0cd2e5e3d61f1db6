"""Exit 0 if the broker in this container is ready to take publishes and consumers, 1 if not."""

import os
import sys
from http.client import HTTPConnection, HTTPException

EVERYWHERE = {"0.0.0.0": "127.0.0.1", "::": "::1"}  # noqa: S104  the address to ask where the broker listens on all


def ready(address: str) -> bool:
    """Whether the broker, whose admin server listens on `address` (HOST:PORT), says that it is ready."""
    host, _, port = address.rpartition(":")
    host = host.strip("[]")
    connection = HTTPConnection(EVERYWHERE.get(host, host), int(port), timeout=4)
    try:
        connection.request("GET", "/health/ready")
        return connection.getresponse().status == 200
    except (OSError, HTTPException):
        return False
    finally:
        connection.close()


if __name__ == "__main__":
    sys.exit(0 if ready(os.environ["AMQPD_ADMIN"]) else 1)
