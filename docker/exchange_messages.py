"""Publish and consume as the image's first user with pika, and check that guest is refused.

python docker/exchange_messages.py HOST:PORT      exits 0 if all checks pass
"""

import sys

import pika
from pika.exceptions import ProbableAuthenticationError

USER = ("verify", "not-guest")  # as docker/verify sets it
MESSAGES = 100


def connection(address: str, user: str, password: str) -> pika.BlockingConnection:
    """Connect to `address` (HOST:PORT)."""
    host, _, port = address.rpartition(":")
    credentials = pika.PlainCredentials(user, password)
    return pika.BlockingConnection(pika.ConnectionParameters(host, int(port), credentials=credentials))


def exchange(address: str) -> None:
    """Publish persistent messages with confirms to a durable queue, and get all of them in order."""
    bodies = [f"message {number}".encode() for number in range(MESSAGES)]
    with connection(address, *USER) as connected:
        channel = connected.channel()
        channel.confirm_delivery()
        channel.queue_declare("verify", durable=True)
        for body in bodies:
            channel.basic_publish("", "verify", body, pika.BasicProperties(delivery_mode=2), mandatory=True)
        got: list[bytes] = []
        for method, _, body in channel.consume("verify", inactivity_timeout=10):
            assert method is not None, f"only {len(got)} of {MESSAGES} messages came back"
            got.append(body)
            channel.basic_ack(method.delivery_tag)
            if len(got) == MESSAGES:
                break
        assert got == bodies, "messages came back in another order"
        channel.cancel()
        channel.queue_delete("verify")


def guest_is_refused(address: str) -> bool:
    """Whether guest/guest cannot log in."""
    try:
        connection(address, "guest", "guest").close()
    except ProbableAuthenticationError:
        return True
    return False


if __name__ == "__main__":
    exchange(sys.argv[1])
    assert guest_is_refused(sys.argv[1]), "guest may log in"
