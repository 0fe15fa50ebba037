"""XML written as a stream, well-formed whatever the texts are."""

from __future__ import annotations

import io
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any, TextIO
from xml.sax.saxutils import XMLGenerator
from xml.sax.xmlreader import AttributesImpl

from kindlm.reports.untrusted import Escapes

# What XML 1.0 has no way to write, not even as a character reference (section 2.2, Char), and the
# controls and noncharacters that it discourages.
_INVALID = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\ud800-\udfff\ufdd0-\ufdef\ufffe\uffff]")


def escaped(text: str) -> str:
    r"""Return a text with the characters that XML 1.0 cannot hold written out, such as `#x1B`.

    So are those that nobody is meant to see, such as marks that change the direction of a text.
    `\r\n` is a line break.
    """
    kept = text.replace("\r\n", "\n")
    return _UNSEEN.written(_INVALID.sub(lambda match: _written_out(match[0]), kept))


def _written_out(char: str) -> str:
    return f"#x{ord(char):02X}"


_UNSEEN = Escapes(_written_out)


class XmlWriter:
    """Writes elements one after the other; nothing is kept but the names of open elements."""

    def __init__(self, out: TextIO) -> None:
        self._out = out
        # The type stubs know of binary streams only; a text stream is written to as it is.
        stream: Any = _Text(out)
        self._generator = XMLGenerator(stream, encoding="utf-8", short_empty_elements=True)
        self._depth = 0
        self._generator.startDocument()

    @contextmanager
    def element(self, tag: str, attributes: Mapping[str, str]) -> Iterator[None]:
        """Write an element around what is written inside the block."""
        self._indent()
        self._open(tag, attributes)
        self._depth += 1
        yield
        self._depth -= 1
        self._generator.ignorableWhitespace("\n" + "  " * self._depth)
        self._generator.endElement(tag)

    def leaf(self, tag: str, attributes: Mapping[str, str], text: str = "") -> None:
        """Write an element with nothing but text in it."""
        self._indent()
        self._open(tag, attributes)
        if text:
            self._generator.characters(escaped(text))
        self._generator.endElement(tag)

    def end(self) -> None:
        """Write the end of the document."""
        self._generator.endDocument()
        self._out.write("\n")

    def _open(self, tag: str, attributes: Mapping[str, str]) -> None:
        values = {name: escaped(value) for name, value in attributes.items()}
        self._generator.startElement(tag, AttributesImpl(values))

    def _indent(self) -> None:
        self._generator.ignorableWhitespace("\n" + "  " * self._depth if self._depth else "")


class _Text(io.TextIOBase):
    """A stream that `XMLGenerator` knows to take texts: one of another class gets bytes of it."""

    def __init__(self, out: TextIO) -> None:
        self._out = out

    def write(self, text: str) -> int:
        return self._out.write(text)
