"""The named types of AMQP 1.0 out of the specification's XML, which is in the Debian package `amqp-specs`."""

from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple
from xml.etree import ElementTree

FOLDER = Path("/usr/share/amqp/specs/1-0")
PARTS = ("types", "transport", "messaging", "transactions", "security")


class Field(NamedTuple):
    name: str
    type: str
    requires: str
    mandatory: bool
    multiple: bool
    default: object


class Type(NamedTuple):
    """A composite or restricted type."""

    name: str
    source: str
    provides: tuple[str, ...]
    descriptor: str
    code: int | None
    fields: tuple[Field, ...]
    choices: tuple[tuple[str, object], ...]


def elements(parent: ElementTree.Element, name: str) -> Iterator[ElementTree.Element]:
    return parent.iter(f"{{http://www.amqp.org/schema/amqp.xsd}}{name}")


def literal(source: str, text: str) -> object:
    if source == "boolean":
        return text == "true"
    return text if source == "symbol" else int(text)


class Specification:
    """The types, by name and in the order of the specification's parts."""

    def __init__(self, folder: Path) -> None:
        roots = [ElementTree.parse(folder / f"{part}.bare.xml").getroot() for part in PARTS]
        found = [element for root in roots for element in elements(root, "type")]
        self.encodings = {
            int(encoding.attrib["code"], 16): element.attrib["name"]
            for element in found
            for encoding in elements(element, "encoding")
        }
        self._elements = {element.attrib["name"]: element for element in found}
        self.types = [self._type(element) for element in found if element.attrib["class"] != "primitive"]
        self.composites = [
            named
            for named in self.types
            if named.source == "list"
            and named.code
            and (self._elements[named.name].attrib["class"] == "composite")
        ]

    def primitive(self, name: str) -> str:
        """Return the primitive type below a restricted type."""
        while self._elements[name].attrib["class"] == "restricted":
            name = self._elements[name].attrib["source"]
            if name == "*":
                break
        return name

    def providers(self, field: Field) -> list[str]:
        """The types that a field may have, none for any type at all."""
        if field.type != "*":
            return [field.type]
        return [named.name for named in self.types if field.requires in named.provides]

    def _type(self, element: ElementTree.Element) -> Type:
        name, source = element.attrib["name"], element.attrib["source"]
        descriptor = next(elements(element, "descriptor"), None)
        return Type(
            name,
            source,
            tuple(element.attrib.get("provides", "").split(", ")) if "provides" in element.attrib else (),
            "" if descriptor is None else descriptor.attrib["name"],
            None if descriptor is None else int(descriptor.attrib["code"].split(":")[1], 16),
            tuple(self._field(field) for field in elements(element, "field")),
            tuple(
                (choice.attrib["name"], literal(source, choice.attrib["value"]))
                for choice in elements(element, "choice")
            ),
        )

    def _field(self, element: ElementTree.Element) -> Field:
        kind, default = element.attrib["type"], element.get("default")
        value: object = None
        if default is not None:
            choices = {
                choice.attrib["name"]: choice.attrib["value"]
                for choice in elements(self._elements[kind], "choice")
            }
            value = literal(self.primitive(kind), choices.get(default, default))
        return Field(
            element.attrib["name"],
            kind,
            element.get("requires", ""),
            element.get("mandatory") == "true",
            element.get("multiple") == "true",
            value,
        )
