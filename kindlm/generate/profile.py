"""What an agent is for: what is known of it before tests are planned."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from kindlm.generate.literals import is_name, one_line
from kindlm.model_answers import object_in, objects_member, text_member, texts_member

_MADE = re.compile(r"[_.\-\d]|[a-z][A-Z]")
"""What names of tools have and words do not: `lookup_order`, `lookupOrder`, `orders.find`."""

_LIST = re.compile(
    r"\b(?:tools?|functions?)\b[^\n:.]{0,40}:[ \t]*(?P<rest>[^\n]*)"
    r"(?P<points>(?:\n[ \t]*[-*\d][^\n]*)*)",
    re.IGNORECASE,
)
_POINT = re.compile(r"\n[ \t]*(?:[-*]|\d+[.)])[ \t]*")
_NEXT = re.compile(r"[,;]|\band\b|\bor\b")
_END = re.compile(r"\.\s|\.$|[:(\u2013\u2014]|\s-\s")
_QUOTES = "`'\" \t*"


def names_tool(text: str, name: str) -> bool:
    """Tell whether a text names a tool.

    It does where the name stands as a whole and could be nothing else: it is no plain word, or in
    backquotes or quotes, or called a tool or a function, or in a list of them ("Tools: search").
    """
    whole = re.compile(rf"(?<![\w.\-]){re.escape(name)}(?![\w\-]|\.\w)")
    if not whole.search(text):
        return False
    called = rf"(?:[`'\"]{re.escape(name)}[`'\"]|{whole.pattern}(?:\(|\s+(?:tool|function)\b))"
    made = _MADE.search(name) is not None
    return made or re.search(called, text) is not None or name in _listed(text)


def _listed(text: str) -> Iterator[str]:
    """Yield the entries of lists of tools, each up to what is said about it."""
    for found in _LIST.finditer(text):
        sentence = re.split(r"\.\s", found["rest"], maxsplit=1)[0]
        yield from (_bare(entry) for entry in _NEXT.split(sentence))
        yield from (_bare(point) for point in _POINT.split(found["points"]))


def _bare(entry: str) -> str:
    return _END.split(entry, maxsplit=1)[0].strip(_QUOTES)


_MOST_TOOLS = 50
_MOST_CONSTRAINTS = 30
_LONGEST = 500


@dataclass(frozen=True, slots=True)
class Exchange:
    """What the agent was asked, what it said, and the names of the tools that it called for it."""

    asked: str
    answered: str
    tools: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class Sources:
    """All that is known of an agent: what the user says of it, and what it said itself."""

    description: str | None = None
    system_prompt: str | None = None
    exchanges: tuple[Exchange, ...] = ()

    def knows_tool(self, name: str) -> bool:
        """Tell whether there is such a tool: the user names it, or the agent called it.

        What an agent says of its tools is no evidence of them.
        """
        called = {tool for exchange in self.exchanges for tool in exchange.tools}
        written = (self.description or "", self.system_prompt or "")
        return name in called or any(names_tool(text, name) for text in written)


@dataclass(frozen=True, slots=True)
class KnownTool:
    """A tool of the agent."""

    name: str
    description: str = ""


@dataclass(frozen=True, slots=True)
class AgentProfile:
    """What an agent is for, what it works with, what it may not do, and how it sounds."""

    purpose: str
    tools: tuple[KnownTool, ...] = ()
    constraints: tuple[str, ...] = ()
    tone: str = ""


def read_profile(text: str, sources: Sources) -> AgentProfile:
    """Read a model's answer; tools that there is no evidence of are left out.

    Raises:
        ValueError: it is no profile; says why.
    """
    answer = object_in(text)
    purpose = one_line(text_member(answer, "purpose"), _LONGEST)
    if not purpose:
        raise ValueError("its purpose is empty")
    called = [tool for exchange in sources.exchanges for tool in exchange.tools]
    tools = {name: KnownTool(name) for name in called}
    for item in objects_member(answer, "tools")[:_MOST_TOOLS]:
        name = text_member(item, "name").strip()
        if is_name(name) and sources.knows_tool(name):
            tools[name] = KnownTool(name, one_line(text_member(item, "description"), _LONGEST))
    return AgentProfile(
        purpose,
        tuple(tools.values()),
        _lines(texts_member(answer, "constraints")),
        one_line(text_member(answer, "tone"), _LONGEST),
    )


def plain_profile(profile: AgentProfile) -> dict[str, Any]:
    """Return a profile as JSON has it."""
    return asdict(profile)


def _lines(texts: Sequence[str]) -> tuple[str, ...]:
    lines = (one_line(text, _LONGEST) for text in texts[:_MOST_CONSTRAINTS])
    return tuple(line for line in lines if line)
