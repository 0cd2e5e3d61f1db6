"""The modules of `protocol/amqp10` that are derived from the named types in the specification's XML.

`python -m tests.support.amqp10.derived_modules` writes these modules. A test compares them with the XML.
"""

from pathlib import Path

from tests.support.amqp10.specification import FOLDER, Field, Specification, Type

PACKAGE = Path(__file__).resolve().parents[3] / "protocol" / "amqp10"
FRAMES = ("frame", "sasl-frame")
HERE = "Derived by `python -m tests.support.amqp10.derived_modules` and not to be edited."

HINTS = {
    "boolean": "bool",
    "ubyte": "int",
    "ushort": "int",
    "uint": "int",
    "ulong": "int",
    "timestamp": "int",
    "uuid": "UUID",
    "binary": "bytes",
    "string": "str",
    "symbol": "str",
    "map": "Mapping[bytes, object]",  # the one field of that type is attach.unsettled: states by delivery-tag
}
FIELDS_HINT = "Mapping[str, object]"  # maps of any other name have symbols as keys


def quoted(value: object) -> str:
    """Return the value's Python literal, in double quotes."""
    if isinstance(value, str):
        return f'"{value}"'
    if isinstance(value, tuple):
        inside = ", ".join(quoted(item) for item in value)
        return f"({inside},)" if len(value) == 1 else f"({inside})"
    if isinstance(value, dict):
        return "{" + ", ".join(f"{quoted(key)}: {quoted(item)}" for key, item in value.items()) + "}"
    return repr(value)


def constant(name: str) -> str:
    return name.upper().replace("-", "_")


def definitions(specification: Specification) -> str:
    """The module with the table of composites."""
    lines = [DEFINITIONS_HEAD]
    for named in specification.composites:
        assert named.descriptor == f"amqp:{named.name}:list"
        lines.append(f'    Definition("{named.name}", 0x{named.code:02X}, {quoted(named.provides)}, (')
        lines += [f"        {field_text(field)}," for field in named.fields]
        lines.append("    )),")
    return "\n".join([*lines, ")", ""])


def restricted(specification: Specification) -> str:
    """The module with the table of restricted types."""
    lines = [RESTRICTED_HEAD]
    for named in specification.types:
        if named not in specification.composites:
            lines += restricted_text(named)
    return "\n".join([*lines, ")", ""])


def descriptors(specification: Specification) -> str:
    """The module with the numbers, also of the sections that are no composites."""
    described = [named for named in specification.types if named.code is not None]
    described.sort(key=lambda named: named.code or 0)
    numbers = [f"{constant(named.name)}: Final = 0x{named.code:02X}" for named in described]
    names = [f'    b"{named.descriptor}": {constant(named.name)},' for named in described]
    return "\n".join([DESCRIPTORS_HEAD, *numbers, "", NUMBERS_HEAD, *names, "}", NUMBERS_DOC, ""])


def field_text(field: Field) -> str:
    parts = [quoted(field.name), quoted(field.type)]
    if field.requires:
        parts.append(f"requires={quoted(field.requires)}")
    if field.mandatory:
        parts.append("mandatory=True")
    if field.multiple:
        parts.append("multiple=True")
    if field.default is not None:
        parts.append(f"default={quoted(field.default)}")
    return f"Field({', '.join(parts)})"


def restricted_text(named: Type) -> list[str]:
    head = f'    Restricted("{named.name}", "{named.source}", {quoted(named.provides)}'
    if not named.choices:
        return [head + ", {}),"]
    choices = [f"        {quoted(name)}: {quoted(value)}," for name, value in named.choices]
    return [head + ", {", *choices, "    }),"]


DESCRIPTORS_HEAD = f'''"""The numeric descriptors of composites and sections. [amqp-1.0]

{HERE}
"""

from typing import Final
'''

NUMBERS_HEAD = "NUMBERS: Final[dict[bytes, int]] = {"
NUMBERS_DOC = '"""The numeric descriptors by the symbolic ones."""'

DEFINITIONS_HEAD = f'''"""The composites of AMQP 1.0, out of the specification's XML. [amqp-1.0]

{HERE}
"""

from typing import Final, NamedTuple


class Field(NamedTuple):
    """A field of a composite.

    `type`: "*" means any type that provides what the field `requires`. `default`: the value that null means.
    """

    name: str
    type: str
    requires: str = ""
    mandatory: bool = False
    multiple: bool = False
    default: object = None


class Definition(NamedTuple):
    """A composite: a list of fields with a descriptor, the number `code` or the `symbol`."""

    name: str
    code: int
    provides: tuple[str, ...]
    fields: tuple[Field, ...]

    @property
    def symbol(self) -> str:
        """The symbolic descriptor."""
        return f"amqp:{{self.name}}:list"


# fmt: off
COMPOSITES: Final = ('''

RESTRICTED_HEAD = f'''"""The restricted types of AMQP 1.0. [amqp-1.0 types 1.4]

{HERE}
"""

from typing import Final, NamedTuple


class Restricted(NamedTuple):
    """A restricted type: a name for the type `source`; `choices`: the only values, by their names, if any."""

    name: str
    source: str
    provides: tuple[str, ...]
    choices: dict[str, object]


# fmt: off
RESTRICTED: Final = ('''


def class_name(name: str) -> str:
    return "".join(word.capitalize() for word in name.split("-"))


class Classes:
    """The text of the modules that have a class for each composite."""

    def __init__(self, specification: Specification) -> None:
        self.specification = specification
        self.classes = {named.name: class_name(named.name) for named in specification.composites}

    def hint(self, field: Field) -> str:
        """The type of the attribute for a field, null included."""
        providers = self.specification.providers(field)
        union = class_name(field.requires)
        if field.type == "*" and providers and all(name in self.classes for name in providers):
            known = len(providers) > 1 and union not in self.classes.values()
            hint = union if known else " | ".join(self.classes[name] for name in providers)
        else:
            hint = " | ".join(self._hint(name) for name in providers) or "object"
        if field.multiple:
            return f"tuple[{hint}, ...]"
        return hint if field.mandatory or field.default is not None or hint == "object" else f"{hint} | None"

    def unions(self, names: list[Type]) -> list[str]:
        """Return the aliases for composites that provide the same archetype."""
        lines: list[str] = []
        wanted = {field.requires for named in self.specification.composites for field in named.fields}
        for requires in sorted(wanted - {""}):
            providers = [named.name for named in names if requires in named.provides]
            if len(providers) > 1 and class_name(requires) not in self.classes.values():
                union = " | ".join(self.classes[name] for name in providers)
                lines.append(f"{class_name(requires)} = {union}")
        return lines

    def text(self, named: Type) -> list[str]:
        lines = [
            "@final",
            "@dataclass(slots=True, kw_only=True)",
            f"class {self.classes[named.name]}(Composite):",
        ]
        lines += [f'    """{named.descriptor}"""', "", f"    DESCRIPTOR: ClassVar[int] = 0x{named.code:02X}"]
        for field in named.fields:
            attribute = field.name.replace("-", "_")
            default = "" if field.mandatory else f" = {quoted(() if field.multiple else field.default)}"
            lines.append(f"    {attribute}: {self.hint(field)}{default}")
        return [*lines, "", ""]

    def _hint(self, name: str) -> str:
        if name in self.classes:
            return self.classes[name]
        primitive = self.specification.primitive(name)
        return FIELDS_HINT if primitive == "map" != name else HINTS[primitive]


CLASSES_HEAD = '''"""{title}

{here}
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import ClassVar, final
{more}
from protocol.amqp10.types import Composite


'''


def modules(folder: Path) -> dict[str, str]:
    """The text of each module by its name."""
    specification = Specification(folder)
    classes = Classes(specification)
    frames = [named for named in specification.composites if set(named.provides) & set(FRAMES)]
    others = [named for named in specification.composites if named not in frames]
    used = sorted(
        {
            name
            for named in frames
            for field in named.fields
            for name in classes.hint(field).removesuffix(" | None").split(" | ")
            if name in classes.classes.values() or name == "DeliveryState"
        }
    )
    others_import = "from protocol.amqp10.composites import " + ", ".join(used)
    return {
        "definitions": definitions(specification),
        "descriptors": descriptors(specification),
        "restricted": restricted(specification),
        "performatives": CLASSES_HEAD.format(
            title="The composites that are bodies of frames. [amqp-1.0 transport 2.7, security 5.3.3]",
            here=HERE,
            more="\n" + others_import,
        )
        + "\n".join(line for named in frames for line in classes.text(named)).rstrip()
        + "\n",
        "composites": CLASSES_HEAD.format(
            title="The composites in fields of other composites, and in messages. [amqp-1.0 parts 2-4]",
            here=HERE,
            more="from uuid import UUID\n",
        )
        + "\n".join([line for named in others for line in classes.text(named)] + classes.unions(others))
        + "\n",
    }


def main() -> None:
    for name, text in modules(FOLDER).items():
        (PACKAGE / f"{name}.py").write_text(text, encoding="utf-8")


if __name__ == "__main__":
    main()
