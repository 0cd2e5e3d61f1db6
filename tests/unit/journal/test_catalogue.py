"""The events of each journal file, from file names and lines of the manifest."""

from __future__ import annotations

import json

import pytest

from protocol.journal.catalogue import Catalogue, Extent
from protocol.journal.files import (
    DAY,
    drop_line,
    file_name,
    parse_file_name,
    read_drops,
    sealed_name,
    sealed_path,
)

START = 20_000 * DAY  # 2024-10-04, microseconds since 1970


def line(first: int, last: int, day: int = 0, node: str = "n") -> bytes:
    values = {"node": node, "first": first, "last": last, "earliest": START + day * DAY, "latest": START + 9}
    return json.dumps(values).encode()


def found(
    catalogue: Catalogue, start: int, end: int | None = None, node: str = "n"
) -> list[tuple[object, ...]]:
    return [(file.state, file.first, file.last) for file in catalogue.files(node, start, end)]


def test_names_of_files_give_their_contents() -> None:
    assert parse_file_name(file_name("a-b", 7)) == ("a-b", 7, None)
    assert parse_file_name(file_name("a-b", 7) + ".open") == ("a-b", 7, None)
    assert parse_file_name(sealed_name("a-b", 7, 9)) == ("a-b", 7, 9)
    assert sealed_path("n", 1, 2, START).startswith("parquet/date=2024-10-04/hour=00/n-0")


@pytest.mark.parametrize(
    "name", ["", "x", "x.ajl", "-" + "0" * 20 + ".ajl", "n-1.ajl", "n-1-2.parquet", ".ajl.open"]
)
def test_invalid_file_names_are_not_parsed(name: str) -> None:
    assert parse_file_name(name) is None


def test_a_drop_line_hides_the_earlier_files_of_its_day() -> None:
    one, two, late = (
        f"parquet/date=2024-10-{name}.parquet" for name in ("04/hour=00/a", "05/hour=00/b", "04/hour=00/c")
    )
    first, second = drop_line("date=2024-10-04", 2), drop_line("date=2024-10-04", 1)
    others = ["", "[]", "1", '"dropped"', '{"dropped": []}', '{"file": 1}', '{"file": "x"}', first[:-3]]
    files = [json.dumps({"file": file}) for file in (one, two, late)]

    assert list(read_drops([*others, *files[:2], first, *others, files[2], second])) == [
        ("date=2024-10-04", 2, [one]),
        ("date=2024-10-04", 1, [late]),
    ]


def test_a_line_about_a_day_is_about_no_file() -> None:
    catalogue = Catalogue()
    for each in (line(1, 10), drop_line("date=2024-10-04", 10).encode(), line(11, 20, day=1)):
        catalogue.add_line(each)
    catalogue.set_present([], ["date=2024-10-05"])
    assert catalogue.extents() == {"n": Extent(11, 21)}


def test_a_late_sealed_file_of_a_dropped_day_restores_no_other_file() -> None:
    catalogue = Catalogue()
    days = ["date=2024-10-04", "date=2024-10-05"]
    late = line(1, 5, node="m")
    for each in (line(1, 10), line(11, 20, day=1), drop_line(days[0], 10).encode(), late):
        catalogue.add_line(each)
    catalogue.set_present([], days)
    assert catalogue.extents() == {"m": Extent(1, 6), "n": Extent(11, 21)}
    assert found(catalogue, 0) == [("sealed", 11, 20)]
    assert found(catalogue, 0, node="m") == [("sealed", 1, 5)]


def test_files_of_both_kinds_are_in_the_order_of_their_seqs() -> None:
    catalogue = Catalogue()
    for each in (line(11, 20), line(1, 10), b"{", b"[]", line(1, 10)):
        catalogue.add_line(each)
    catalogue.set_present(
        [file_name("n", 31) + ".open", file_name("n", 11), file_name("n", 21), "x"], ["date=2024-10-04"]
    )
    assert found(catalogue, 0) == [
        ("sealed", 1, 10),
        ("sealed", 11, 20),
        ("ended", 11, 20),
        ("ended", 21, 30),
        ("open", 31, None),
    ]
    assert found(catalogue, 10, 12) == [("sealed", 1, 10), ("sealed", 11, 20), ("ended", 11, 20)]
    assert found(catalogue, 21, 31) == [("ended", 21, 30)]
    assert found(catalogue, 99) == [("open", 31, None)]
    assert found(catalogue, 0, node="m") == []
    assert catalogue.extents() == {"n": Extent(1, None)}


def test_a_raw_file_ends_where_the_next_one_begins_sealed_or_not() -> None:
    catalogue = Catalogue()
    catalogue.add_line(line(11, 20))
    catalogue.set_present([file_name("n", 1), file_name("n", 41)], ["date=2024-10-04"])
    assert found(catalogue, 0) == [("ended", 1, 10), ("sealed", 11, 20), ("ended", 41, None)]


def test_files_removed_by_retention_are_not_listed() -> None:
    catalogue = Catalogue()
    for day in range(4):
        catalogue.add_line(line(10 * day + 1, 10 * day + 10, day))
    catalogue.set_present([], [f"date=2024-10-0{4 + day}" for day in range(4)])
    assert catalogue.extents() == {"n": Extent(1, 41)}
    catalogue.set_present([], ["date=2024-10-06", "date=2024-10-07", "other"])
    assert catalogue.extents() == {"n": Extent(21, 41)}
    assert found(catalogue, 0) == [("sealed", 21, 30), ("sealed", 31, 40)]
    assert catalogue.find(sealed_name("n", 1, 10)) is None
    catalogue.set_present([], ["date=2024-10-04", "date=2024-10-07"])
    assert found(catalogue, 11) == [("sealed", 11, 20), ("sealed", 21, 30), ("sealed", 31, 40)], (
        "somebody else"
    )
    catalogue.set_present([], [])
    assert catalogue.extents() == {"n": Extent(41, 41)}


def test_a_node_whose_files_are_all_gone_untold_is_not_known() -> None:
    catalogue = Catalogue()
    catalogue.add_line(line(1, 10, node="m"))
    catalogue.set_present([file_name("n", 7)], ["date=2024-10-04"])
    assert catalogue.extents() == {"m": Extent(1, 11), "n": Extent(7, None)}
    catalogue.set_present([], ["date=2024-10-04"])
    assert catalogue.extents() == {"m": Extent(1, 11)}


@pytest.mark.parametrize("end", [None, 71], ids=str)
def test_changes_during_the_listing_leave_no_file_out(end: int | None) -> None:
    catalogue = Catalogue()
    for first in (1, 21, 31):  # 11 to 20 is sealed later
        catalogue.add_line(line(first, first + 9))
    raw = [file_name("n", first) for first in range(11, 92, 10)]
    catalogue.set_present(raw, ["date=2024-10-04"])
    expected = found(catalogue, 0, end)
    files = catalogue.files("n", 0, end)
    listed = [next(files) for _ in range(5)]
    for first in range(11, 92, 10):
        catalogue.add_line(line(first, first + 9))
    catalogue.set_present(raw[4:], [])
    listed += files
    assert [first for _, first, _ in expected] == [1, 11, 21, 21, 31, 31, 41, 51, 61, 71, 81, 91][
        : len(expected)
    ]
    assert {file.first for file in listed} == {first for _, first, _ in expected}
    assert len(set(listed)) == len(listed)
    assert listed == sorted(listed, key=lambda file: file.first)


def test_files_are_found_by_their_names() -> None:
    catalogue = Catalogue()
    catalogue.add_line(line(1, 10))
    catalogue.set_present([file_name("n", 11) + ".open"], ["date=2024-10-04"])
    for name in (sealed_name("n", 1, 10), file_name("n", 11)):
        file = catalogue.find(name)
        assert file is not None
        assert file.name == name
    for name in (sealed_name("n", 1, 11), file_name("n", 12), file_name("m", 11), file_name("n", 1), "x"):
        assert catalogue.find(name) is None
