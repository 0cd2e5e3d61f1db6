"""The derived modules agree with the specification's XML."""

from pathlib import Path

import pytest

from protocol.amqp10 import conditions
from protocol.amqp10.decoding import decode
from protocol.amqp10.restricted import RESTRICTED
from tests.support.amqp10.derived_modules import PACKAGE, modules
from tests.support.amqp10.specification import FOLDER, Specification
from tests.support.amqp10.value_bytes import LONGER, SMALLEST


@pytest.fixture
def folder() -> Path:
    if not (FOLDER / "transport.bare.xml").exists():
        pytest.skip("the specification's XML is not here: the Debian package amqp-specs is not installed")
    return FOLDER


def test_the_derived_modules_equal_the_modules_derived_from_the_specification(folder: Path) -> None:
    texts = modules(folder)

    assert set(texts) == {"composites", "definitions", "descriptors", "performatives", "restricted"}
    for name, text in texts.items():
        assert (PACKAGE / f"{name}.py").read_text(encoding="utf-8") == text


def test_every_constructor_of_the_specification_is_among_the_bytes_that_are_tested(folder: Path) -> None:
    tested = {bytes.fromhex(digits)[0] for digits, _ in SMALLEST + LONGER}

    assert tested - {0} == set(Specification(folder).encodings)
    for digits, _ in SMALLEST:
        decode(bytes.fromhex(digits))


@pytest.mark.spec("amqp-1.0", "2.8.15")
@pytest.mark.spec("amqp-1.0", "2.8.16")
@pytest.mark.spec("amqp-1.0", "2.8.17")
@pytest.mark.spec("amqp-1.0", "2.8.18")
@pytest.mark.spec("amqp-1.0", "4.5.8")
def test_the_conditions_are_those_of_the_specification() -> None:
    named = [value for name, value in vars(conditions).items() if name.isupper()]
    chosen = [
        choice
        for restricted in RESTRICTED
        if restricted.name.endswith("-error")
        for choice in restricted.choices.values()
    ]

    assert named == chosen
    assert len(named) == 13 + 3 + 4 + 5 + 3
