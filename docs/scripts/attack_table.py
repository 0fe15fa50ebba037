"""Writes the tables of `attack-tests.md`: the tests of the pack, and the classes that they have."""

from __future__ import annotations

from collections import Counter
from importlib.util import find_spec
from pathlib import Path

import yaml

_CLASSES = {
    "ASI01": "Agent Goal Hijack",
    "ASI02": "Tool Misuse and Exploitation",
    "ASI03": "Identity and Privilege Abuse",
    "ASI04": "Agentic Supply Chain Vulnerabilities",
    "ASI05": "Unexpected Code Execution",
    "ASI06": "Memory and Context Poisoning",
    "ASI07": "Insecure Inter-Agent Communication",
    "ASI08": "Cascading Failures",
    "ASI09": "Human-Agent Trust Exploitation",
    "ASI10": "Rogue Agents",
    "LLM01": "Prompt Injection",
    "LLM02": "Sensitive Information Disclosure",
    "LLM03": "Supply Chain",
    "LLM04": "Data and Model Poisoning",
    "LLM05": "Improper Output Handling",
    "LLM06": "Excessive Agency",
    "LLM07": "System Prompt Leakage",
    "LLM08": "Vector and Embedding Weaknesses",
    "LLM09": "Misinformation",
    "LLM10": "Unbounded Consumption",
}
_FILES = {"models.yaml": "results of simulated tools", "conversations.yaml": "messages of the user"}


def _tests() -> dict[str, list[tuple[str, list[str]]]]:
    spec = find_spec("kindlm.scenarios.packs.owasp_agentic")
    assert spec is not None
    assert spec.origin is not None
    folder = Path(spec.origin).parent
    return {
        file: [
            (test["name"], test["tags"])
            for test in yaml.safe_load((folder / file).read_text("utf-8"))["tests"]
        ]
        for file in _FILES
    }


def class_table() -> str:
    """Return a row for each class: its name, and how many tests it has in each file."""
    found = _tests()
    counts = {file: Counter(tag for _, tags in found[file] for tag in tags) for file in _FILES}
    head = "| class | name | " + " | ".join(f"`{file}`" for file in _FILES) + " |\n"
    rows = (
        f"| {tag} | {name} | {' | '.join(str(counts[file][tag] or '–') for file in _FILES)} |\n"
        for tag, name in _CLASSES.items()
    )
    return f"{head}| --- | --- {'| --- ' * len(_FILES)}|\n{''.join(rows)}"


def test_table() -> str:
    """Return a row for each test of the pack."""
    rows = (
        f"| {name} | {_FILES[file]} | {', '.join(tags)} |\n"
        for file, tests in _tests().items()
        for name, tags in tests
    )
    return f"| test | attacks by | classes |\n| --- | --- | --- |\n{''.join(rows)}"
