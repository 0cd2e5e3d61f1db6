"""Recovery: from the files of a folder to a log that is ready for appends."""

from __future__ import annotations

from broker.store.append import HeldMessages
from broker.store.format import HEADER_BYTES
from broker.store.recovery.files import Reading
from broker.store.recovery.sink import RecoveryReport, RecoverySink
from broker.store.segment import READY, RESERVE, SPARE


def recover(log: HeldMessages, sink: RecoverySink) -> RecoveryReport:
    """Lock the folder, replay it, repair its end, and begin a new segment for this run.

    No segment of an earlier run is ever appended to. The order of the writes matters: a torn end is cut, and
    the last batch, which may be only in the page cache, is written again and synced before anything follows
    it.
    """
    log.files.lock()
    reading = Reading(log)
    try:
        log.syncer.attach(log.files.directory, log, log.files.lock_fd)
        reading.run()
        log.identity = reading.identity or log.disk.new_identity()
        tail = reading.tail_segment
        if tail is not None and not reading.is_whole():
            cut = (int(tail.number), int(reading.tail_at))
            reading.forget()
            reading = Reading(log, cut)
            reading.run()
        log.streams.recovered = dict(reading.replay.streams)
        log.streams.last = {number: first for number, first, _, _ in reading.replay.appended}
        reading.deliver(sink)
        log.streams.recovered = {}  # the queues of the rest have been deleted
        log.streams.last = {}
        begin(log, reading)
    except BaseException:
        log.let_go()
        raise
    return reading.report


def begin(log: HeldMessages, reading: Reading) -> None:
    """Repair the end of the replayed log and begin a new segment for this run. Raises OSError."""
    log.identity = log.identity or reading.identity or log.disk.new_identity()
    _mend(log, reading)
    _take_over(log, reading)
    reading.report.segments = log.segments.count


def _mend(log: HeldMessages, reading: Reading) -> None:
    """Make the disk match exactly what has been replayed."""
    disk = log.disk
    files = log.files
    tail = reading.tail_segment
    if tail is not None:
        fd = disk.open(files.path(tail.name))
        try:
            length = tail.good - reading.tail_at
            assert length > HEADER_BYTES
            disk.truncate(fd, tail.good)
            disk.write(fd, [disk.read(fd, length, reading.tail_at)], reading.tail_at)
            disk.sync(fd)
        finally:
            disk.close(fd)
    disk.sync_directory(
        files.directory
    )  # the newest name may be in memory only, and must be on disk before the next steps
    for name in [*reading.leftovers, SPARE]:
        disk.unlink(files.path(name))
    if RESERVE in disk.names(files.directory):
        fd = disk.open(files.path(RESERVE))
        files.reserve_length = disk.size(fd)
        disk.close(fd)
        if files.reserve_length >= files.reserve_bytes:
            files.reserve = READY
        else:
            disk.unlink(files.path(RESERVE))
    disk.sync_directory(files.directory)
    reading.report.removed += reading.leftovers


def _take_over(log: HeldMessages, reading: Reading) -> None:
    """Take over the replayed state, and write the first batch: a checkpoint without unneeded segments."""
    replay = reading.replay
    log.next_sequence = replay.next_sequence
    log.settled = replay.settled
    log.counts = replay.counts
    log.batch = reading.last_batch + 1
    log.durable = reading.last_batch
    gone: set[int] = set()
    dead: list[str] = []
    for segment in log.segments.all():
        if segment.live == 0 and segment.needs <= gone:
            gone.add(segment.number)
            dead.append(segment.name)
            log.segments.remove(segment)
    log.start(reading.highest + 1)
    for message, queue in reading.void:
        if log.segments.get(message.segment) is not None:
            log.append_void(message, queue)
    for name in dead:
        log.syncer.remove(name)
    for name in log.streams.useless():
        log.disk.unlink(log.files.path(name))  # now: other streams may soon have files of these names
    reading.report.removed += dead
    log.files.ask(True)
