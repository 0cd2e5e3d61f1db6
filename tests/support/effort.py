"""The effort of tests and of the tested code: random cases, and work counted instead of timed."""

import os
import signal
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import product
from types import FrameType
from typing import Any, Final, Self

import argon2
import pytest
from allpairspy import AllPairs

THOROUGH: Final = os.environ.get("TESTS_THOROUGH") == "1"


def cases(thorough: int) -> int:
    """The number of random cases to run, of `thorough` ones: all in the nightly tier, else a third."""
    return thorough if THOROUGH else max(1, thorough // 3)


def combinations(*parameters: Iterable[object]) -> list[tuple[Any, ...]]:
    """Return all combinations of values in the nightly tier, else some with all pairs of values."""
    values = [list(each) for each in parameters]
    return list(product(*values)) if THOROUGH else [tuple(each) for each in AllPairs(values)]


def lines_executed(call: Callable[[], object]) -> int:
    """The lines of Python that `call` executes: a measure of work that no other load changes.

    Compiled modules count nothing, so a test may only set an upper bound.
    """
    executed = 0

    def trace(_frame: FrameType, event: str, _value: object) -> Any:
        nonlocal executed
        executed += event == "line"
        return trace

    outer = sys.gettrace()
    sys.settrace(trace)
    try:
        call()
    finally:
        sys.settrace(outer)
    return executed


class CountedBytes(bytes):
    """Bytes that count the octets that slicing copies, slices of slices included.

    Compiled modules may count nothing, so a test may only set an upper bound.
    """

    copied: list[int]

    @classmethod
    def of(cls, data: bytes, copied: list[int] | None = None) -> Self:
        """Count in `copied[0]`, by default in a new list."""
        found = cls(data)
        found.copied = [0] if copied is None else copied
        return found

    def __getitem__(self, key: Any) -> Any:
        """An octet, or a slice that counts in the same place."""
        found = super().__getitem__(key)
        if not isinstance(key, slice):
            return found
        self.copied[0] += len(found)
        return CountedBytes.of(found, self.copied)


@contextmanager
def ending(cpu_s: float = 60.0) -> Iterator[None]:
    """Raise TimeoutError where work of milliseconds takes `cpu_s` seconds of CPU: it would take years."""

    def give_up(_signal: int, _frame: FrameType | None) -> None:
        raise TimeoutError(f"no end after {cpu_s} s of CPU")

    before = signal.signal(signal.SIGPROF, give_up)
    signal.setitimer(signal.ITIMER_PROF, cpu_s)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_PROF, 0)
        signal.signal(signal.SIGPROF, before)


def hashes_made(monkeypatch: pytest.MonkeyPatch) -> list[argon2.Parameters]:
    """Return the parameters of each argon2 hash from now on, made to keep or to compare."""
    made: list[argon2.Parameters] = []
    make, verify = argon2.PasswordHasher.hash, argon2.PasswordHasher.verify

    def noted_hash(self: argon2.PasswordHasher, *arguments: Any, **options: Any) -> str:
        found = make(self, *arguments, **options)
        made.append(argon2.extract_parameters(found))
        return found

    def noted_verify(self: argon2.PasswordHasher, kept: str, password: bytes) -> bool:
        made.append(argon2.extract_parameters(kept))
        return verify(self, kept, password)

    monkeypatch.setattr(argon2.PasswordHasher, "hash", noted_hash)
    monkeypatch.setattr(argon2.PasswordHasher, "verify", noted_verify)
    return made
