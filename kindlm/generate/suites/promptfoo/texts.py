"""Reads texts of promptfoo: prompts, CSV files, and templates with plain names only."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from typing import Any

from kindlm.config.interpolation import is_deferred
from kindlm.dataclass import dataclass
from kindlm.errors import Ok
from kindlm.generate.imported_tests import ImportedSuite, prompt_section
from kindlm.generate.suite_text import unused
from kindlm.generate.suites import Files, LeftOutError, Part, excerpt_of, read_part
from kindlm.values import filled

_OPENING = re.compile(r"\{[{%#]")
_NAME = re.compile(r"\{\{-?\s*([A-Za-z_]\w*(?:\.\w+)*)\s*-?\}\}", re.ASCII)
_FILE = re.compile(r"[\w./*-]+\.(?:txt|md|j2|json|jsonl|ya?ml|csv|[cm]?[jt]s|py|sh|rb)", re.ASCII)
_ELSEWHERE = re.compile(r"(?:exec|langfuse|portkey|helicone|package)[:/]")
_TEXTS = (".txt", ".md", ".j2")


def replace_names(text: str, replacement: Callable[[str], str]) -> str:
    """Return a template with its names replaced.

    Raises:
        LeftOutError: it has a filter, a block or anything else but names.
    """
    rest = _NAME.sub("", text)
    if (other := _OPENING.search(rest)) is not None:
        instead = "kindlm fills in plain names, as {{name}}: put the result into a variable"
        raise LeftOutError(f"the template {excerpt_of(rest[other.start() :])}", instead)
    return _NAME.sub(lambda found: replacement(found[1]), text)


def text_of(value: Any) -> str:
    """Return a scalar as promptfoo inserts it into a text."""
    if isinstance(value, str):
        return value
    if isinstance(value, float) and value.is_integer():
        value = int(value)
    return "" if value is None else json.dumps(value)


@dataclass(frozen=True, slots=True)
class Variables:
    """The variables of a test, each with one value."""

    values: Mapping[str, Any]

    def fill(self, value: Any) -> Any:
        """Return a value with the names in all its texts filled in; see `replace_names`."""
        return filled(value, lambda text: replace_names(text, self.text))

    def at(self, name: str) -> Any:
        """Return the value at a name, unfilled; None if there is none."""
        value: Any = self.values
        for key in name.split("."):
            value = value.get(key) if isinstance(value, Mapping) else None
        return value

    def text(self, name: str) -> str:
        """Return the text for a name; "" if there is no such variable.

        Raises:
            LeftOutError: the value is no plain text, or the name is one of the environment.
        """
        if is_deferred(name):
            raise LeftOutError(f"{{{{{name}}}}}", "Write the value: kindlm keeps it out of prompts")
        value = self.at(name)
        if isinstance(value, dict | list):
            raise LeftOutError(f"{{{{{name}}}}}, which is not text", "Name a part of it")
        text = text_of(value)
        if _OPENING.search(text):
            raise LeftOutError(f"{{{{{name}}}}}, whose value is a template", "Write the value")
        return text


def file_value(value: Any, files: Files) -> Any:
    """Return the content for a text such as `file://facts.txt`; any other value as it is.

    Raises:
        LeftOutError: the file is a program or no text, or cannot be read.
    """
    if not isinstance(value, str) or not value.startswith("file://"):
        return value
    name = value.removeprefix("file://")
    if name.endswith((".json", ".yaml", ".yml")):
        return files.part(name).value
    if name.endswith(_TEXTS):
        return files.text(name).strip()
    raise LeftOutError(f"the file {name}", "kindlm reads texts, JSON and YAML, and runs no code")


def read_prompts(
    document: Part, files: Files, suite: ImportedSuite
) -> dict[str, Mapping[str, str]]:
    """Return the entries of `prompts` by name; note those without an equivalent."""
    found: dict[str, Mapping[str, str]] = {}
    for part in document.items("prompts") or [Part("{{prompt}}", document.file, document.line_of)]:
        with suite.noting(part, "a prompt with "):
            for label, text in _texts(part, files):
                section = {
                    role: replace_names(template, _placeholder)
                    for role, template in _section(text).items()
                }
                found[unused(label, found)] = section
    return found


def _texts(part: Part, files: Files) -> Iterator[tuple[str, str]]:
    """Yield the prompts of an entry, each with its label."""
    text = part.value if isinstance(part.value, str) else part.text("raw") or part.text("id")
    label = part.text("label")
    if text is None or _ELSEWHERE.match(text):
        what = f"the source {excerpt_of(part.value)}"
        raise LeftOutError(what, "Write it as a text, or as messages in a file")
    if not text.startswith("file://") and not _FILE.fullmatch(text):
        yield label or "prompt", text
        return
    for file in files.named(text.removeprefix("file://")):
        file_value(f"file://{file}", files)  # raises for programs
        texts = [files.text(file)]
        if file.endswith(_TEXTS):
            texts = re.split(r"^---\s*$", texts[0], flags=re.MULTILINE)
        stem = file.rpartition("/")[2].rpartition(".")[0]
        for number, each in enumerate(texts, start=1):
            suffix = f"-{number}" if len(texts) > 1 else ""
            yield f"{label or stem}{suffix}", each.strip()


def _section(text: str) -> dict[str, str]:
    """Return the entry of a prompt: a text, or messages as JSON or YAML."""
    if re.match(r"\[\s*\{|-\s+role\s*:", text):
        read = read_part("prompt.json" if text[0] == "[" else "prompt.yaml", text.encode())
        if isinstance(read, Ok) and isinstance(read.value.value, list):
            return prompt_section(read.value.value)
    if not text:
        raise LeftOutError("an empty text")
    return {"user": text}


def _placeholder(name: str) -> str:
    if is_deferred(name):
        raise LeftOutError(f"{{{{{name}}}}}", "Use a variable of the tests")
    return f"{{{{{name}}}}}"


def rows_of(file: str, text: str) -> Iterator[Part]:
    """Yield the rows of a CSV file as tests.

    Raises:
        LeftOutError: the file is not CSV.
    """
    # Cells beyond the header become a setting, which is reported as unknown.
    reader = csv.DictReader(io.StringIO(text, newline=""), restkey="__cells without a header")
    try:
        for row in reader:
            test: dict[str, Any] = {"vars": {}, "assert": [], "metadata": {}}
            for key, value in row.items():
                name = key.strip()
                if not name.startswith("__"):
                    if value is not None:
                        test["vars"][name] = value
                elif value and name.startswith("__metadata:"):
                    test["metadata"][name.removeprefix("__metadata:")] = value
                elif name.startswith("__expected"):
                    if value and value.strip():
                        test["assert"].append(_expected(value.strip()))
                elif value:
                    test[name.removeprefix("__")] = value
            yield Part(test, file, partial(_same, reader.line_num))
    except csv.Error as error:
        raise LeftOutError(f"the file {file}", f"Correct it: {error}") from None


def _same(line: int, _: object) -> int:
    return line


_KIND = r"similar:(?:cosine|dot|euclidean)|trajectory:[a-z-]+|[a-z][a-z0-9-]*"
_EXPECTED = re.compile(
    rf"(?!file:)(?P<type>(?:not-)?(?:{_KIND}))"
    r"(?:\((?P<threshold>\d+(?:\.\d+)?)\))?(?::(?P<value>[\s\S]*))?"
)
_WITHOUT_VALUE = re.compile(r"(?:not-)?(?:is|contains)-[a-z-]+")
_OTHER_NAMES = {"fn": "javascript", "eval": "javascript", "grade": "llm-rubric"}
_THRESHOLDS = {"similar": 0.8, "answer-relevance": 0.75, "context-faithfulness": 0.75}
"""The default thresholds in cells of CSV files."""


def _expected(text: str) -> dict[str, Any]:
    """Return the assertion in a cell: `type(threshold):value`, `is-json`, or a text to equal.

    A word in lower case before a colon is a type, which is left out if it is unknown.
    """
    name, colon, value = text.partition(":")
    if colon:
        text = f"{_OTHER_NAMES.get(name, name)}:{value}"
    found = _EXPECTED.fullmatch(text)
    is_word = re.fullmatch(r"[\w-]+", text) and text not in _THRESHOLDS
    if found is None or (is_word and not _WITHOUT_VALUE.fullmatch(text)):
        return {"type": "equals", "value": text}
    kind, threshold, value = found.groups()
    assertion = {
        "type": kind,
        "threshold": float(threshold) if threshold else _THRESHOLDS.get(kind),
        "value": value and value.strip(),
    }
    return {key: each for key, each in assertion.items() if each is not None}
