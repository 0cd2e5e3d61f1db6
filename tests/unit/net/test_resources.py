"""Memory, disk and descriptors of the process, compared with limits."""

import ctypes
import subprocess
import sys
from pathlib import Path

import pytest

from broker.adapters.peers.connections import Connections
from broker.adapters.peers.shortage import Shortage
from broker.net.resources import (
    IDLE_CHECKS,
    IdleMemory,
    Resources,
    free_bytes,
    free_in_library,
    resident_bytes,
    return_memory,
)
from tests.support.core.hand_clock import HandClock
from tests.support.daemon.daemon import ROOT


def checked(tmp_path: Path, memory_max: int, disk_free_min: int, log_is_full: bool = False) -> str:
    shortage = Shortage(Connections(HandClock().schedule))
    Resources(shortage, str(tmp_path), memory_max, disk_free_min).check(log_is_full)
    return shortage.reason


@pytest.mark.skipif(not Path("/proc/self/statm").exists(), reason="this system does not tell")
def test_memory_is_held_against_its_limit(tmp_path: Path) -> None:
    assert checked(tmp_path, 1, 0) == "low on memory"
    assert checked(tmp_path, resident_bytes() * 10, 0) == ""
    assert checked(tmp_path, 0, 0) == "", "not watched"


def test_space_is_held_against_its_limit(tmp_path: Path) -> None:
    assert checked(tmp_path, 0, 1 << 62) == "low on disk"
    assert checked(tmp_path, 0, 1) == ""
    assert checked(tmp_path, 0, 0, log_is_full=True) == "low on disk"


def test_values_that_the_system_does_not_report_are_no_shortage(tmp_path: Path) -> None:
    assert resident_bytes(tmp_path / "none") == 0
    (tmp_path / "odd").write_text("1")
    assert resident_bytes(tmp_path / "odd") == 0
    assert free_bytes(str(tmp_path / "none")) == -1
    assert checked(tmp_path / "none", 0, 1 << 62) == ""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "malloc_trim"), reason="the C library cannot do it")
def test_memory_that_is_only_kept_for_later_goes_back() -> None:
    blocks = [bytes(2000) + b"%d" % number for number in range(50_000)]
    kept = blocks[::1000]
    del blocks
    full = resident_bytes()
    return_memory()
    assert resident_bytes() < full - (50 << 20)
    assert len(kept) == 50


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="the C library does not tell")
def test_memory_that_the_library_keeps_free_is_measured() -> None:
    blocks = [bytes(2000) + b"%d" % number for number in range(50_000)]
    kept = blocks[::1000]
    before = free_in_library()
    del blocks
    assert free_in_library() > before + (50 << 20)
    assert len(kept) == 50


HASHES = """
from concurrent.futures import ThreadPoolExecutor
from broker.auth.passwords import hash_password
from broker.net.resources import return_large_blocks, resident_bytes
return_large_blocks()
before = resident_bytes()
with ThreadPoolExecutor(2) as threads:
    list(threads.map(hash_password, "abcdef"))
    print(resident_bytes() - before)
"""


@pytest.mark.skipif(not hasattr(ctypes.CDLL(None), "mallinfo2"), reason="another C library")
def test_threads_that_have_hashed_passwords_keep_no_memory_of_it() -> None:
    done = subprocess.run([sys.executable, "-c", HASHES], capture_output=True, check=True, cwd=ROOT)
    assert int(done.stdout) < 8 << 20


class Library:
    """A C library with so many bytes free, which counts how often they were given back."""

    def __init__(self) -> None:
        self.given_back = 0
        self.spare = IdleMemory(self.give_back)

    def give_back(self) -> None:
        self.given_back += 1

    def check(self, *free: int) -> int:
        """Look once for each; returns how often memory has been given back by then."""
        for megabytes in free:
            self.spare.check(megabytes << 20)
        return self.given_back


def test_memory_that_a_burst_has_left_goes_back_once() -> None:
    library = Library()
    assert library.check(*[100] * (IDLE_CHECKS - 1)) == 0
    assert library.check(100) == 1
    assert library.check(*[100] * 5 * IDLE_CHECKS) == 1, "free, but the system has it"
    assert library.check(*[110] * 5 * IDLE_CHECKS) == 1, "little more"


def test_memory_that_is_used_again_and_freed_again_goes_back_again() -> None:
    library = Library()
    library.check(*[100] * IDLE_CHECKS)
    library.check(20)
    assert library.check(*[100] * IDLE_CHECKS) == 2


def test_memory_that_comes_and_goes_stays() -> None:
    library = Library()
    assert library.check(*[100, 100, 100, 5] * 3 * IDLE_CHECKS) == 0
