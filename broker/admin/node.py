"""The node: what the process uses of the machine, under RabbitMQ's names. [RabbitMQ management: nodes]

Linux reports all of it under `/proc`. What the system does not report is 0.
"""

import gc
import os
import resource
import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Final

from broker.admin.state import Measured

IN_USE: Final = ("mem_used", "disk_free", "sockets_used", "fd_used", "proc_used")
"""What is in use now."""

DONE: Final = (
    "gc_num",
    "gc_bytes_reclaimed",
    "context_switches",
    "io_read_count",
    "io_read_bytes",
    "io_read_avg_time",
    "io_write_count",
    "io_write_bytes",
    "io_write_avg_time",
    "io_sync_count",
    "io_sync_avg_time",
    "io_seek_count",
    "io_seek_avg_time",
    "io_reopen_count",
    "msg_store_read_count",
    "msg_store_write_count",
    "queue_index_read_count",
    "queue_index_write_count",
    "mnesia_ram_tx_count",
    "mnesia_disk_tx_count",
)
"""What the node has done since its start. Parts of RabbitMQ that amqpd does not have have done nothing."""

NODE: Final = IN_USE + DONE

FILES_MAX: Final = 2**31 - 1
"""The number that tools get instead of no limit: some read 32 bits."""


def open_files() -> int:
    """Return the number of open file descriptors of the process, 0 if unknown."""
    try:
        return len(os.listdir("/proc/self/fd"))
    except OSError:
        return 0


def files_max() -> int:
    """Return how many file descriptors the process may open, at most FILES_MAX."""
    limit = resource.getrlimit(resource.RLIMIT_NOFILE)[0]
    return FILES_MAX if limit == resource.RLIM_INFINITY else min(limit, FILES_MAX)


def threads_max() -> int:
    """Return how many threads the system allows, 0 if unknown."""
    with suppress(OSError, ValueError), open("/proc/sys/kernel/threads-max") as file:
        return int(file.read())
    return 0


def _io() -> dict[str, int]:
    """Return the calls and bytes that the process has read and written, as Linux counts them. [proc(5)]"""
    found: dict[str, int] = {}
    with suppress(OSError, ValueError), open("/proc/self/io") as file:
        for line in file:
            name, _, number = line.partition(":")
            found[name] = int(number)
    return found


def node_meter(measured: Measured) -> Callable[[], list[int]]:
    """Return the function that returns the present numbers of NODE."""

    def measure() -> list[int]:
        counters, log = measured.broker.counters, measured.log
        usage = resource.getrusage(resource.RUSAGE_SELF)
        io = _io()
        collections = sum(generation["collections"] for generation in gc.get_stats())
        syncs = sum(log.sync_latency.counts)
        return [
            measured.resources.memory,
            measured.resources.disk_free,
            int(counters.connections_opened - counters.connections_closed),
            open_files(),
            threading.active_count(),
            collections,
            0,
            usage.ru_nvcsw + usage.ru_nivcsw,
            io.get("syscr", 0),
            io.get("read_bytes", 0),
            0,
            io.get("syscw", 0),
            io.get("write_bytes", 0),
            0,
            syncs,
            round(log.sync_latency.sum * 1000 / syncs) if syncs else 0,
            0,
            0,
            0,
            log.message_reads,
            int(counters.disk_writes),
            0,
            0,
            0,
            0,
        ]

    return measure
