"""Words that docs, messages and docstrings do not use: each has a plainer one beside it."""

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]

BANNED = {
    r"can not\b": "cannot",
    r"nobody(?! asked for)": "no one; or name who or what does not",
    r"calls? of (a )?(tools?|models?)\b": "tool call, model call",
    r"answers? of (a )?tools?\b": "tool result",
    r"mend(s|ed|ing)?\b": "fix",
    r"(is|are|was|were) told\b": "reports, shows, prints",
    r"(tell|tells|told) of\b": "reports, names",
    r"whoever": "anyone who; or name them",
    r"(?<!there )(is|are|was|were) no (JSON|YAML|UTF-8|text\b|object|list of|mapping)": "is not",
    r"exclude each other": "cannot be combined",
    r"is there twice": "occurs twice",
    r"is none that": "is not",
}
"""Each pattern, and what to write in its place."""

_WORDS = re.compile(rf"(?<![\w-])(?:{'|'.join(BANNED)})", re.IGNORECASE)
_SEAM = re.compile(r'"\s*f?"')
_PAGES = ["README.md", "store/README.md", "docs/**/*.md", "examples/**/README.md"]
_CODE = ["kindlm/**/*.py", "store/kindlm_store/**/*.py"]
# What models read may not change (recorded answers are found by it), nor SQL without a new version.
_SENT = {
    "users.py",
    "honesty.py",
    "simulation.py",
    "questions.py",
    "safety.py",
    "packs",
    "projections",
}


def banned(path: Path) -> list[str]:
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        if not _WORDS.search(_SEAM.sub("", text)):
            return []  # faster than to parse it
        tree = ast.walk(ast.parse(text))
        found = [
            (node.lineno, node.value)
            for node in tree
            if isinstance(node, ast.Constant) and isinstance(node.value, str)
        ]
    else:
        found = list(enumerate(text.splitlines(), 1))
    return [
        f"{path.relative_to(ROOT)}:{line}: {match[0]}"
        for line, words in found
        for match in _WORDS.finditer(words)
    ]


@pytest.mark.parametrize("patterns", [_PAGES, _CODE], ids=["docs", "code"])
def test_docs_and_messages_use_plain_words(patterns: list[str]) -> None:
    paths = [path for pattern in patterns for path in ROOT.glob(pattern)]
    paths = [path for path in paths if not _SENT & {path.name, *path.parts[-3:-1]}]
    assert paths
    wrong = [each for path in paths for each in banned(path)]
    assert not wrong, "\n".join([*wrong, "Plainer words:", *map(str, BANNED.items())])
