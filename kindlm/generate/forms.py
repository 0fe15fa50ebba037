"""A planned scenario as a file of Python or YAML: our templates, with the plan's texts as literals.

The statements are always the same ones, whatever was planned. Nothing of the plan stands anywhere
but inside string literals: also comments are all ours. Only a literal is safe in code; bounding a
text or making it one line is not enough. Literals of Python are written as its formatters write
them: in double quotes unless single ones save escapes, and long ones in parts.
"""

from __future__ import annotations

import re
import unicodedata
from collections.abc import Iterator
from typing import Any

from kindlm.generate.suite_text import WIDTH, Comment, escaped, parted, width_of, yaml_text
from kindlm.generate.test_plan import PlannedScenario, PlannedTurn


def python_literal(text: str) -> str:
    """Return the literal of a text."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    inside = "".join(f"\\{quote}" if char == quote else escaped(char) for char in text)
    return f"{quote}{inside}{quote}"


def python_parts(text: str, room: int) -> list[str]:
    """Return the literals that make up a text, each of at most `room` columns."""
    whole = python_literal(text)
    if width_of(whole) <= room:
        return [whole]
    # However a part is quoted, at most every quote in it is escaped.
    return [python_literal(part) for part in parted(text, room - 2, _widest)]


def _widest(char: str) -> str:
    return f"\\{char}" if char in "'\"" else escaped(char)


_NO_LETTERS = re.compile(r"[^\w]+|_+")
_WIDEST_SLUG = 40
"""Columns: the line that begins a function with the longest category is not too long then."""


def slug(text: str) -> str:
    """Return the words of a text as a part of a file's name, and of a function's.

    That is lower case, digits and underscores; letters of other alphabets stay, accents do not.
    """
    letters = "".join(map(_plain, unicodedata.normalize("NFKC", text.lower())))
    # Not all that counts as a letter may stand in a name.
    named = "".join(char if f"a{char}".isidentifier() else "_" for char in letters)
    words = _NO_LETTERS.sub("_", unicodedata.normalize("NFKC", named)).strip("_")
    while width_of(words) > _WIDEST_SLUG:
        words = words[:-1]
    return words.rstrip("_") or "scenario"


def _plain(letter: str) -> str:
    """Return a letter without its accents, if what is left is one of ASCII."""
    parts = unicodedata.normalize("NFKD", letter)
    bare = "".join(part for part in parts if not unicodedata.combining(part))
    return bare if bare.isascii() else letter


_INDENT = "    "
_ORIGIN = "Written by `kindlm gen` from a plan that a model made; it is yours to edit."
_RIGHT = "What a right answer does: a judge gives it points."
_WRONG = "What it must not do: a judge says of each rule whether it is kept."
_TONE = "How it sounds."
_TOOLS = "What it takes to answer."


def python_text(scenario: PlannedScenario, name: str, agent: str | None) -> str:
    """Return the file of a scenario; `name` is that of its function, without `test_`: a slug.

    `agent` is the URL of the agent, if the project's configuration does not name it.
    """
    lines = [
        *_docstring(f"{scenario.category}: {scenario.title}", "", _ORIGIN),
        "",
        "from kindlm import Persona, Trial, scenario",
        "",
        "user = Persona(",
        *(
            line
            for name, text in scenario.user.items()
            for line in _value(f"{name}=", text, _INDENT)
        ),
        ")",
        "",
        "",
        "@scenario(",
        *_value("", scenario.title, _INDENT),
        f'{_INDENT}tags=["{scenario.category}", "generated"],',
        *(_value("agent=", agent, _INDENT) if agent is not None else ()),
        ")",
        f"async def test_{name}(t: Trial) -> None:",
        *_docstring(scenario.why, _INDENT),
    ]
    for number, turn in enumerate(scenario.turns, start=1):
        lines += [*([""] if number > 1 else []), *_turn(turn, f"r{number}")]
    return "\n".join(lines) + "\n"


def _docstring(text: str, indent: str, more: str | None = None) -> list[str]:
    """Return the lines of a docstring that begins with a text of one line.

    It holds no quotes that could end it, and nothing that could be taken for an escape.
    """
    harmless = text.replace('"', "'").replace("\\", "/")
    room = WIDTH - len(indent) - len('"""""".')
    lines = [part.strip() for part in parted(harmless, room, str) if part.strip()]
    if lines[-1][-1] not in ".!?":
        lines[-1] += "."
    lines[0] = f'"""{lines[0]}'
    if more is not None:
        lines += ["", more]
    if len(lines) == 1:
        return [f'{indent}{lines[0]}"""']
    return [f"{indent}{line}".rstrip() for line in [*lines, '"""']]


def _turn(turn: PlannedTurn, reply: str) -> Iterator[str]:
    yield from _sent(turn.says, f"{reply} = " if turn.is_checked else "")
    if turn.right:
        yield f"{_INDENT}# {_RIGHT}"
    for criterion in turn.right:
        yield from _call("t.judge", criterion, reply)
    if turn.wrong:
        yield f"{_INDENT}# {_WRONG}"
        yield f"{_INDENT}t.guardrail("
        yield f"{_INDENT * 2}{reply},"
        yield f"{_INDENT * 2}must_not=["
        for rule in turn.wrong:
            yield from _value("", rule, _INDENT * 3)
        yield f"{_INDENT * 2}],"
        yield f"{_INDENT})"
    if turn.tone:
        yield f"{_INDENT}# {_TONE}"
        yield from _call("t.sentiment", turn.tone, reply)
    if turn.tools:
        yield f"{_INDENT}# {_TOOLS}"
    for tool in turn.tools:
        yield from _call(f"t.check({reply}).tool_called", tool)


def _sent(says: str, kept: str) -> Iterator[str]:
    """Yield the sending of a message: on one line, on three, or with the message on its own."""
    whole = python_literal(says)
    call, message = f"{_INDENT}{kept}await t.agent.send(", f"user.says({whole})"
    if width_of(f"{call}{message})") <= WIDTH:
        yield f"{call}{message})"
        return
    yield call
    if width_of(f"{_INDENT * 2}{message}") <= WIDTH:
        yield f"{_INDENT * 2}{message}"
    else:
        deeper = _INDENT * 3
        yield f"{_INDENT * 2}user.says("
        yield from (f"{deeper}{part}" for part in python_parts(says, WIDTH - len(deeper)))
        yield f"{_INDENT * 2})"
    yield f"{_INDENT})"


def _call(function: str, text: str, reply: str | None = None) -> Iterator[str]:
    """Yield a call with a text of the plan, and the name of an answer before it if it takes one."""
    before = f"{_INDENT}{function}({reply}, " if reply else f"{_INDENT}{function}("
    line = f"{before}{python_literal(text)})"
    if width_of(line) <= WIDTH:
        yield line
        return
    yield f"{_INDENT}{function}("
    if reply:
        yield f"{_INDENT * 2}{reply},"
    yield from _value("", text, _INDENT * 2)
    yield f"{_INDENT})"


def _value(before: str, text: str, indent: str) -> Iterator[str]:
    """Yield an argument of its own line, in parentheses if it takes more than one."""
    line = f"{indent}{before}{python_literal(text)},"
    if width_of(line) <= WIDTH:
        yield line
        return
    deeper = f"{indent}{_INDENT}"
    yield f"{indent}{before}("
    yield from (f"{deeper}{part}" for part in python_parts(text, WIDTH - len(deeper)))
    yield f"{indent}),"


def scenario_yaml(scenario: PlannedScenario, agent: str | None) -> str:
    """Return the file of a scenario in YAML; see `python_text`."""
    return yaml_text(
        {
            Comment(_ORIGIN): None,
            "name": scenario.title,
            "description": scenario.why,
            "tags": [scenario.category, "generated"],
            **({} if agent is None else {"agent": agent}),
            "persona": dict(scenario.user),
            "turns": [
                {
                    "says": turn.says,
                    **({"expect": expected} if (expected := _expected(turn)) else {}),
                }
                for turn in scenario.turns
            ],
        }
    )


def _expected(turn: PlannedTurn) -> list[Any]:
    """Return what is expected of an answer, each kind below a comment."""
    kinds: dict[str, list[Any]] = {
        _RIGHT: [{"judge": criterion} for criterion in turn.right],
        _WRONG: [{"guardrail": {"must_not": list(turn.wrong)}}] if turn.wrong else [],
        _TONE: [{"sentiment": turn.tone}] if turn.tone else [],
        _TOOLS: [{"tool_called": tool} for tool in turn.tools],
    }
    return [each for said, checks in kinds.items() if checks for each in (Comment(said), *checks)]
