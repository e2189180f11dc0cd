"""Data structures of the NVMe specifications as objects: their bytes, and each field as an attribute.

    class SmartLog(Structure):
        structure_bytes = 512
        media_errors = Number(160, 16, "Media and Data Integrity Errors")

A structure is a `bytes` object, so that whatever takes raw bytes takes it too.
"""

from __future__ import annotations

import html
from collections.abc import Iterable, Mapping
from typing import Any, ClassVar, Generic, Self, TypeVar, overload

T = TypeVar("T")


class Field(Generic[T]):
    """One field: where it lies in the structure, in bytes, and its title in the specification."""

    def __init__(self, offset: int, length: int, title: str) -> None:
        self.offset = offset
        self.length = length
        self.title = title
        self.__doc__ = title

    @overload
    def __get__(self, structure: None, owner: type) -> Self: ...
    @overload
    def __get__(self, structure: bytes, owner: type) -> T: ...
    def __get__(self, structure: bytes | None, owner: type) -> Self | T:
        if structure is None:
            return self
        return self.value(bytes.__getitem__(structure, slice(self.offset, self.offset + self.length)))

    def value(self, raw: bytes) -> T:
        """What the field's bytes mean."""
        raise NotImplementedError

    def text(self, value: T) -> str:
        """A value for eyes."""
        return str(value)


class Number(Field[int]):
    """A little-endian number."""

    def value(self, raw: bytes) -> int:
        """The number."""
        return int.from_bytes(raw, "little")


class Bits(Number):
    """A number that is a set of bits or an identifier, and reads better in hexadecimal."""

    def text(self, value: int) -> str:
        """In hexadecimal, but for zero."""
        return f"{value:#x}" if value else "0"


class Text(Field[str]):
    """Text, padded with blanks or zero bytes."""

    def value(self, raw: bytes) -> str:
        """Without the padding."""
        return raw.split(b"\0")[0].rstrip(b" ").decode("utf-8", errors="replace")


class Digits(Field[str]):
    """An identifier as hexadecimal digits, from its first byte on."""

    def value(self, raw: bytes) -> str:
        """Two digits a byte."""
        return raw.hex()


class ReversedDigits(Digits):
    """A little-endian identifier, such as an OUI, written from its most significant byte."""

    def value(self, raw: bytes) -> str:
        """Two digits a byte."""
        return raw[::-1].hex()


class Structure(bytes):
    """The bytes of one structure, with its fields as attributes.

    Raises:
        ValueError: if there are more or fewer bytes than the structure has.
    """

    structure_bytes: ClassVar[int] = 0
    what: ClassVar[str] = "data"

    def __new__(cls, data: bytes) -> Self:
        """Takes the bytes."""
        if len(data) != cls.structure_bytes:
            raise ValueError(f"{cls.what} has {len(data)} bytes instead of {cls.structure_bytes}")
        return super().__new__(cls, data)

    @property
    def raw(self) -> bytes:
        """The bytes as they came."""
        return bytes(self)

    @classmethod
    def fields(cls) -> dict[str, Field[Any]]:
        """Name -> field, in the structure's order."""
        return {name: field for name, field in vars(cls).items() if isinstance(field, Field)}

    def to_dict(self) -> dict[str, int | str]:
        """Name -> value, in the structure's order."""
        return {name: getattr(self, name) for name in self.fields()}

    def texts(self) -> dict[str, str]:
        """Name -> value as text, in the structure's order."""
        return {name: field.text(getattr(self, name)) for name, field in self.fields().items()}

    def _summary(self) -> str:
        return ""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self._summary()}>"

    __str__ = __repr__

    def _repr_html_(self) -> str:
        fields = self.fields()
        rows = [(name, text, fields[name].title if name in fields else "") for name, text in self.texts().items()]
        return html_table(type(self).__name__, ("field", "value", "meaning"), rows)


def html_table(title: str, heads: Iterable[str], rows: Iterable[Iterable[object]]) -> str:
    """A small table for notebooks; everything is escaped."""

    def row(cells: Iterable[object], tag: str) -> str:
        return "<tr>" + "".join(f'<{tag} style="text-align:left">{_cell(cell)}</{tag}>' for cell in cells) + "</tr>"

    body = "".join(row(cells, "td") for cells in rows)
    return f"<table><caption>{_cell(title)}</caption><thead>{row(heads, 'th')}</thead><tbody>{body}</tbody></table>"


def html_facts(title: str, facts: Mapping[str, object]) -> str:
    """A table of name and value."""
    return html_table(title, ("", ""), facts.items())


def _cell(value: object) -> str:
    return html.escape(str(value))
