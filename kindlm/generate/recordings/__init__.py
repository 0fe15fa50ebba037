"""Recorded conversations, read from files of other programs and from our own log.

`otlp` and `exported_spans` read files. Their `read` returns one recording for each trace, and None
for a document of another source. It raises `ValueError` for a document that is broken. A document
is the JSON values of a file: one, or one for each line of a JSON Lines file. A file that is not
JSON is one value of type bytes. All of it is untrusted.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from kindlm.dataclass import dataclass
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import ToolDefinition
from kindlm.strict_json import parse_json, require_shallow
from kindlm.transcript import Transcript

MAX_BYTES = 100_000_000

Document = list[Any]


@dataclass(frozen=True, slots=True)
class Recording:
    """One recorded conversation with a model or an agent.

    Attributes:
        name: what the test is called; need not be short, or unique.
        transcript: system text, turns of the user, answers, tool calls with their results.
        tools: tool definitions sent to the model, as far as they are known.
        provider: as the source names it, such as `openai`; None if unknown.
        model: as the source names it; None if unknown.
        failed: whether the source says that something went wrong.
        tags: those of the test that it is of.
        missing: why this is not enough for a test; None if it is.
    """

    name: str
    transcript: Transcript
    tools: tuple[ToolDefinition, ...] = ()
    provider: str | None = None
    model: str | None = None
    failed: bool = False
    tags: tuple[str, ...] = ()
    missing: str | None = None


def read_recordings(data: bytes, file: Path) -> Result[list[Recording]]:
    """Read the content of a file by the first source that knows its form."""
    if len(data) > MAX_BYTES:
        return _unreadable(file, f"it has more than {MAX_BYTES // 1_000_000} MB")
    if not data.strip():
        return _unreadable(file, "it is empty")
    if data.startswith(b"\x1f\x8b"):
        return _unreadable(file, "it is compressed; unpack it with gunzip")
    from kindlm.generate.recordings import exported_spans, otlp  # both make recordings

    try:
        document = _document(data)
        found = otlp.read(document) or exported_spans.read(document)
        if found is not None:
            return Ok(list(found))
    except (ValueError, RecursionError) as error:
        return _unreadable(file, f"it is broken: {error}")
    return _unreadable(file, "its format is unknown")


def _document(data: bytes) -> Document:
    """Return the JSON values of a file."""
    encoding = json.detect_encoding(data[:4])  # PowerShell writes UTF-16
    if data[:1000].decode(encoding, "replace").lstrip()[:1] not in ("{", "["):
        return [data]
    text = data.decode(encoding)
    document: Document = []
    try:
        document.append(parse_json(text))
    except ValueError as error:
        for number, line in enumerate(text.split("\n")):
            try:
                document += [parse_json(line)] if line.strip() else []
            except ValueError:
                if not document:
                    raise error from None
                parse_json("\n" * number + line)  # raises an error with the number of the line
    require_shallow(document)
    return document


def _unreadable(file: Path, why: str) -> Err:
    hint = "kindlm reads these traces: otlp, langfuse, langsmith, phoenix."
    message = f"{file} cannot be read: {why}."
    return Err(KindlmError(ErrorCode.CONFIG_PARSE_ERROR, message, hint))
