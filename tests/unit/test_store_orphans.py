"""Pieces of large bodies that nobody refers to any more: memory and disk are given back."""

import gc
from pathlib import Path

from broker.core.message import piece_of
from tests.unit.test_store_bodies import small_segments, upload


def test_what_the_log_never_had_is_no_orphan(tmp_path: Path) -> None:
    """Nobody else would drop it, and a log that has stopped drops nothing at the end of a batch."""
    log = small_segments(tmp_path)
    body = log.new_body()
    piece_of(body, b"frames", 6)
    del body
    gc.collect()
    assert log.orphans == []
    log.close()


def test_a_log_that_has_stopped_gives_back_memory(tmp_path: Path) -> None:
    log = small_segments(tmp_path)
    before = log.content_bytes
    body = upload(log, 1)
    assert log.content_bytes > before
    log.group.stop("the disk is broken")
    del body
    gc.collect()
    log.tick()
    assert (log.orphans, log.content_bytes) == ([], before)
    log.release()
