"""Reads attacks of PyRIT: seed data sets, YAML files in `datasets/seed_datasets/local`."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from kindlm.generate.corpora import Attack, leak_of_system_text
from kindlm.generate.suite_text import slug
from kindlm.wires import objects
from kindlm.yaml_document import read_document

_FOLDER = "datasets/seed_datasets/local"
_NO_PROMPTS = ("examples", "garak")
"""Folders with examples of the format, and with parts of prompts."""
_OF_THESE_PROMPTS = ("garak/doctor", "garak/system_prompt_extraction")


def corpora(package: Path) -> dict[str, Path]:
    """Return the data sets with prompts, by their path without its suffix."""
    root = package / _FOLDER
    files = [file for end in ("yaml", "prompt") for file in root.rglob(f"*.{end}")]
    named = {file.relative_to(root).with_suffix("").as_posix(): file for file in files}
    return {
        name: file
        for name, file in sorted(named.items())
        if name.partition("/")[0] not in _NO_PROMPTS or name in _OF_THESE_PROMPTS
    }


def read(name: str, file: Path) -> Iterator[Attack | str]:
    """Yield the attacks of a data set, or the reason why one is left out.

    The seeds of a group are one attack; so is a seed without a group.
    """
    document = read_document(file.read_bytes())
    if document.problems or not isinstance(document.value, dict):
        raise ValueError(f"{file.name} is not a seed data set")
    whole = document.value
    groups: dict[object, list[Mapping[str, Any]]] = {}
    for number, seed in enumerate(objects(whole.get("seeds"))):
        alias = seed.get("prompt_group_alias")
        group = number if alias is None else str(alias)
        groups.setdefault(group, []).append({**whole, **seed})
    for number, members in enumerate(groups.values(), start=1):
        messages = _messages(members)
        if isinstance(messages, str):
            yield messages
            continue
        harms = members[0].get("harm_categories") or []
        tags = [
            f"harm:{slug(str(each))}" for each in (harms if isinstance(harms, list) else [harms])
        ]
        title = f"{name} {number}"
        if "system_prompt" in name or "steal_system" in name:
            yield leak_of_system_text(title, messages, tags)
        else:
            yield Attack(title, messages, tuple(tags))


def _sequence(seed: Mapping[str, Any]) -> int:
    sequence = seed.get("sequence")
    return sequence if isinstance(sequence, int) else 0


def _messages(group: list[Mapping[str, Any]]) -> tuple[str, ...] | str:
    """Return the user's messages in a group, or the reason why they cannot be sent."""
    of_user = [each for each in group if each.get("role", "user") == "user"]
    prompts = [each for each in of_user if each.get("seed_type") != "objective"] or of_user
    texts = [
        str(each.get("value", "")).strip()
        for each in sorted(prompts, key=_sequence)
        if each.get("data_type", "text") == "text"
    ]
    if len(texts) < len(prompts):
        return "with more than text, such as an image"
    if any("{{" in text for text in texts):
        return "with parameters"
    return tuple(filter(None, texts)) or "without a message of a user"
