"""kill -9 during operations on messages: each is done whole or not at all, and answered ones are done."""

import random
import threading
import time

import httpx
import pika

from tests.interop.pika_connection import connected
from tests.support.admin.api import Api
from tests.support.daemon.daemon import Daemon, DaemonStarter

MESSAGES = 3000
STEP = 100
ROUNDS = 4


def move_until_killed(api: Api, answered: list[int]) -> None:
    """Move messages from `q` to `r`, so many at a time; notes each answer."""
    body = {"all": True, "limit": STEP, "to": {"queue": "r"}}
    try:
        while True:
            answer = api.ask("POST", "queues", "/", "q", "messages", "move", body=body)
            if answer.status_code != 200 or answer.json()["done"] == 0:
                break
            answered.append(answer.json()["done"])
    except httpx.TransportError:
        pass  # the broker was killed


def numbers(api: Api, queue: str) -> list[int]:
    """The numbers of the messages of a queue, in order."""
    found = api.get("queues", "/", queue, "messages", count="10000")["messages"]
    return [int(message["payload"]) for message in found]


def round_ends_whole(daemon: Daemon, start_daemon: DaemonStarter, before: int, pause: float) -> Daemon:
    """Kill the broker during moves, and check the places of all messages."""
    answered: list[int] = []
    api = Api(daemon.admin)
    mover = threading.Thread(target=move_until_killed, args=(api, answered))
    mover.start()
    while not answered and mover.is_alive():
        time.sleep(0.001)
    mover.join(pause)
    daemon.kill()
    mover.join()
    api.close()
    daemon = start_daemon()
    api = Api(daemon.admin)
    left, moved = numbers(api, "q"), numbers(api, "r")
    api.close()
    assert moved + left == list(range(MESSAGES))
    assert len(moved) % STEP == 0
    assert before + sum(answered) <= len(moved) <= before + sum(answered) + STEP
    return daemon


def test_kill_among_operations(start_daemon: DaemonStarter) -> None:
    daemon = start_daemon()
    with connected(daemon.address) as connection:
        channel = connection.channel()
        channel.tx_select()
        for name in ("q", "r"):
            channel.queue_declare(name, durable=True)
        persistent = pika.BasicProperties(delivery_mode=2)
        for number in range(MESSAGES):
            channel.basic_publish("", "q", b"%d" % number, persistent)
        channel.tx_commit()
    chance = random.Random(4)
    for _ in range(ROUNDS):
        api = Api(daemon.admin)
        before = api.get("queues", "/", "r", "messages", "count")["count"]
        api.close()
        daemon = round_ends_whole(daemon, start_daemon, before, chance.random() / 5)
