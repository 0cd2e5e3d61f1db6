"""AMQP addresses that are listened on, by the event loop that the daemon has."""

import asyncio
import socket
import time

import uvloop

from broker.net.listener import ACCEPTED_AT_ONCE, Listener
from broker.net.pump import Pump
from broker.net.strangers import Strangers
from config.settings import Settings
from config.values import Endpoint
from tests.support.adapters.connection_without_socket import BrokerBench
from tests.support.daemon.daemon import PATIENCE_S


def test_many_connections_are_accepted_in_one_turn_of_the_loop() -> None:
    async def serve() -> int:
        loop = asyncio.get_running_loop()
        pump = Pump(loop.call_soon, time.monotonic)
        listener = Listener(BrokerBench().server, pump, loop, Strangers(1000, 1000))
        await listener.open_all(Settings(listen=(Endpoint("127.0.0.1", 0),)))
        (bound,) = listener.bound
        clients = [socket.create_connection((bound.host, bound.port)) for _ in range(8 * ACCEPTED_AT_ONCE)]
        turns = 0
        while len(listener.transports) < len(clients) and turns < 1000 * len(clients):
            await asyncio.sleep(0)
            turns += 1
        for client in clients:
            client.close()
        await listener.close(PATIENCE_S)
        return turns

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(serve()) <= 4 * ACCEPTED_AT_ONCE
