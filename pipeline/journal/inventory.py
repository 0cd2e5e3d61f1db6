"""The check of a sealed journal's files against its manifest, before their events are read."""

from __future__ import annotations

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from hashlib import file_digest
from pathlib import Path
from typing import Any, Final, NamedTuple

from pyspark.errors import AnalysisException
from pyspark.sql import SparkSession
from pyspark.sql import functions as F  # noqa: N812

from pipeline.connector.server import Server
from pipeline.journal.options import JournalOptions
from protocol.journal.files import LIVE, MANIFEST, PARQUET, SEALED
from protocol.journal.inventory import Fault, Inventory, dropped_files

READERS: Final = 2  # threads that compute digests, and mostly wait for the disk


class FileFaults(NamedTuple):
    """The result. `faults`: rows of findings.

    `strays`: paths in the journal's folder of files not to be read.

    `judged`: the manifest exists, or is known to be missing.
    """

    faults: list[dict[str, Any]]
    strays: list[str]
    judged: bool


def check_sealed(spark: SparkSession, journal: str, since: int | None = None) -> FileFaults:
    """Compare the sealed files of a journal with its manifest.

    `journal`: its folder, or the one of its Parquet files. `since`: microseconds since 1970; digests of files
    that end earlier are not compared.
    """
    return _in_url(spark, journal) if "://" in journal else _in_folder(Path(journal), since)


def check_served(options: JournalOptions, since: int | None = None) -> FileFaults:
    """Compare the files of a journal with its manifest, or let its broker compare them.

    `options`: of `format("amqp-journal")`. Raises ServerError.
    """
    if options.server is not None:
        return FileFaults(list(_served(options.server)), [], True)
    assert options.folder is not None, "options have been looked at"
    return _in_folder(Path(options.folder), since)


def _served(server: Server) -> Iterator[dict[str, Any]]:
    start: int | None = 0
    while start is not None:
        answer = server.get("journal", "check", **{"from": start})
        yield from map(_row, (Fault(**fault) for fault in answer["faults"]))
        start = answer["next"]


def _in_folder(folder: Path, since: int | None) -> FileFaults:
    if not (folder / PARQUET).is_dir() and folder.name == PARQUET:
        folder = folder.parent
    sealed = [
        str(path.relative_to(folder))
        for path in (folder / PARQUET).rglob(f"*{SEALED}")
        if not any(part.startswith((".", "_")) for part in path.relative_to(folder).parts)
    ]
    raw = [path.name for path in (folder / LIVE).glob("*")]
    lines = _lines_of(folder)
    inventory = Inventory(lines, sealed, raw)
    dropped: set[str] = set()
    looked_at = [each for each in inventory.present if since is None or each.latest >= since]
    with ThreadPoolExecutor(READERS) as readers:
        digests = readers.map(_digest, [folder / each.file for each in looked_at])
        for listed, digest in zip(looked_at, digests, strict=True):
            if digest is None and listed.file not in dropped:
                dropped = dropped_files(_lines_of(folder) or [])
            if digest is not None or listed.file not in dropped:
                inventory.compare_digest(listed, digest)
    return _held(inventory, lines is not None)


def _lines_of(folder: Path) -> list[str] | None:
    try:
        return (folder / MANIFEST).read_text().splitlines()
    except FileNotFoundError:
        return None


def _digest(path: Path) -> str | None:
    try:
        with path.open("rb") as file:
            return file_digest(file, "sha256").hexdigest()
    except FileNotFoundError:
        return None


def _in_url(spark: SparkSession, journal: str) -> FileFaults:
    """Compare the files of a journal that only Spark can read; its tasks compute the digests."""
    parent, _, last = journal.rstrip("/").rpartition("/")
    folder = parent if last == PARQUET else journal.rstrip("/")
    try:
        files = spark.read.format("binaryFile").load(f"{folder}/{PARQUET}")
        path = F.substring_index("path", f"/{PARQUET}/", -1)
        digests = files.where(path.endswith(SEALED)).select(path, F.sha2("content", 256)).collect()
    except AnalysisException:  # the folder does not exist
        return FileFaults([], [], False)
    lines: list[str] | None = None
    with suppress(AnalysisException):
        lines = [row[0] for row in spark.read.text(f"{folder}/{MANIFEST}").collect()]
    sha256 = {f"{PARQUET}/{row[0]}": row[1] for row in digests}
    try:
        raw = [row[0].rpartition("/")[2] for row in _names(spark, f"{folder}/{LIVE}")]
    except AnalysisException:
        raw = []
    inventory = Inventory(lines, sha256, raw)
    for listed in list(inventory.present):
        inventory.compare_digest(listed, sha256[listed.file])
    return _held(inventory, lines is not None)


def _names(spark: SparkSession, folder: str) -> list[Any]:
    names: list[Any] = spark.read.format("binaryFile").load(folder).select("path").collect()
    return names


def _held(inventory: Inventory, has_manifest: bool) -> FileFaults:
    faults = [_row(fault) for fault in inventory.faults]
    return FileFaults(faults, inventory.strays, has_manifest or bool(faults))


def _row(fault: Fault) -> dict[str, Any]:
    return fault._asdict()
