"""The prompts of promptfoo: texts, or messages of a chat, in the file or in others."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass

from kindlm.errors import Ok
from kindlm.generate.imported_tests import section_of
from kindlm.generate.suites import Files, Notes, NoTwinError, Part, excerpt_of, read_part
from kindlm.generate.suites.promptfoo.templates import file_value, replace_names
from kindlm.strict_json import read_json

_FILE = re.compile(r"[\w./*-]+\.(?:txt|md|j2|json|jsonl|ya?ml|csv|[cm]?[jt]s|py|sh|rb)", re.ASCII)
_ELSEWHERE = re.compile(r"(?:exec|langfuse|portkey|helicone|package)[:/]")


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt: its name in the suite, its section, and the names by which tests select it."""

    name: str
    section: Mapping[str, str]
    names: frozenset[str]


def read_prompts(document: Part, files: Files, notes: Notes) -> list[Prompt]:
    """Return the prompts of a configuration; note those without a twin."""
    written = document.get("prompts")
    parts = [] if written is None else written.items()
    if written is None:
        parts = [Part("{{prompt}}", document.file, document.line_of)]
    elif isinstance(written.value, dict) and not {"id", "raw"} & written.value.keys():
        # Files, each with its label.
        parts = [
            Part({"id": file, "label": label.value}, label.file, label.line_of, label.keys)
            for file, label in written.entries().items()
        ]
    found: list[Prompt] = []
    for part in parts:
        try:
            for label, text, names in _texts(part, files):
                taken = {each.name for each in found}
                name, number = label, 1
                while name in taken:
                    number += 1
                    name = f"{label}-{number}"
                found.append(Prompt(name, _section(text), frozenset({label, name, *names})))
        except NoTwinError as error:
            notes.left_out(part, f"a prompt with {error.what}", error.instead)
    return found


def fits(wanted: str, names: frozenset[str]) -> bool:
    """Tell whether a filter means something by one of its names: whole, or as a group."""
    group = wanted.removesuffix("*").removesuffix(":")
    return any(name in (wanted, group) or name.startswith(f"{group}:") for name in names)


def _texts(part: Part, files: Files) -> Iterator[tuple[str, str, set[str]]]:
    """Yield the texts of an entry, each with its label and its other names."""
    text = part.value if isinstance(part.value, str) else part.text("raw") or part.text("id")
    label = part.text("label")
    if text is None:
        what = f"the form {excerpt_of(part.value)}"
        raise NoTwinError(what, "Write it as a text, or as messages in a file")
    if _ELSEWHERE.match(text):
        raise NoTwinError(f"the source {excerpt_of(text)}", "Write the prompt into a file")
    if not text.startswith("file://") and not _FILE.fullmatch(text):
        yield label or "prompt", text, {text}
        return
    for file in files.named(text.removeprefix("file://")):
        if file.endswith((".csv", ".jsonl")):
            raise NoTwinError(f"the file {file}", "Write each prompt into a file of its own")
        file_value(f"file://{file}", files)  # which refuses programs
        texts = [files.text(file)]
        if file.endswith((".txt", ".j2")):
            texts = re.split(r"^---\s*$", texts[0], flags=re.MULTILINE)
        stem = file.rpartition("/")[2].rpartition(".")[0]
        for number, each in enumerate(texts, start=1):
            suffix = f"-{number}" if len(texts) > 1 else ""
            yield f"{label or stem}{suffix}", each.strip(), {label or stem, stem, text, file}


def _section(text: str) -> dict[str, str]:
    """Return the section of a prompt: of a text, or of messages as JSON or YAML.

    Raises:
        NoTwinError: It holds what kindlm cannot send before the answer, or fill in.
    """
    messages = read_json(text) if text.startswith("[") else None
    if re.match(r"-\s+role\s*:", text):
        read = read_part("prompt.yaml", text.encode())
        messages = read.value.value if isinstance(read, Ok) else None
    is_chat = isinstance(messages, list) and all(
        isinstance(each, dict) and "role" in each for each in messages
    )
    section = section_of(messages) if messages and is_chat else {"user": text}
    found = {role: replace_names(said, _placeholder) for role, said in section.items()}
    if not found["user"]:
        raise NoTwinError("an empty text", "Write what the user says")
    return found


def _placeholder(name: str) -> str:
    if name.startswith(("env.", "serve.")):
        raise NoTwinError(f"{{{{{name}}}}}", "Use a variable of the tests")
    return f"{{{{{name}}}}}"
