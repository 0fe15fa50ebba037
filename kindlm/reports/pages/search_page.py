"""The page of the search: what was asked, and the texts in which it is, the newest first."""

from __future__ import annotations

import re
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from urllib.parse import urlencode

from kindlm.dataclass import dataclass
from kindlm.history.search import Findings, Kind, Progress, TooLongError, find_texts, is_damage
from kindlm.reports.figures import percent
from kindlm.reports.pages.html_document import Document
from kindlm.reports.untrusted import one_line

_LISTED = 20
_NUMBER = re.compile(r"-?\d{1,15}", re.ASCII)

KINDS = {
    Kind.PROMPT: "prompts",
    Kind.OUTPUT: "outputs",
    Kind.ARGUMENTS: "tool arguments",
    Kind.ANSWER: "tool results",
}
_NAMES = {
    Kind.PROMPT: "prompt",
    Kind.OUTPUT: "output",
    Kind.ARGUMENTS: "tool arguments",
    Kind.ANSWER: "tool result",
}


@dataclass(frozen=True, slots=True)
class SearchIndex:
    """The index of a history: its file, how far it is, and why it gets no further, if so."""

    history: Path
    progress: Progress
    problem: str | None


def search_page(db: sqlite3.Connection, index: SearchIndex, query: Mapping[str, str]) -> Document:
    """Return the page; `query` may hold q, kind, and after, where older texts begin.

    While the index is behind, the page renews itself.

    Raises:
        sqlite3.DatabaseError: The index is damaged.
    """
    # Invisible characters are no words, and must not come back in the page.
    written = "".join(char if char.isprintable() else " " for char in query.get("q", "")).strip()
    kind = next((each for each in Kind if each.value == query.get("kind")), None)
    text = query.get("after", "")
    after = int(text) if _NUMBER.fullmatch(text) else None
    findings, problem = _found(db, index, written, kind, after)
    older = None
    if findings is not None and findings.next is not None:
        narrowed = {"kind": kind.value} if kind else {}
        older = "?" + urlencode({"q": written, **narrowed, "after": str(findings.next)})
    behind = not index.progress.current and index.problem is None
    return Document(
        "search.html",
        f"Search: {one_line(written)}" if written else "Search",
        {
            "written": written,
            "kind": kind,
            "kinds": {each.value: name for each, name in KINDS.items()},
            "names": _NAMES,
            "findings": findings,
            "older": older,
            "behind": behind,
            "done": percent(int(index.progress.part * 100) / 100),
            "problem": problem,
            "index_problem": index.problem,
        },
        styles=("runs", "search", "pager"),
        scripts=("live",) if behind else (),
    )


def _found(
    db: sqlite3.Connection, index: SearchIndex, written: str, kind: Kind | None, after: int | None
) -> tuple[Findings | None, str | None]:
    if not written:
        return None, None
    try:
        found = find_texts(db, index.history, written, kind=kind, after=after, limit=_LISTED)
    except FileNotFoundError:
        return Findings((), None, as_words=False), None
    except TooLongError:
        return None, "This search takes too long. Use longer prefixes, or fewer of them."
    except sqlite3.Error as error:
        if is_damage(error):
            raise
        return None, f"The index cannot be read: {error}."
    return found, None
