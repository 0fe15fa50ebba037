"""Writes a planned scenario as a Python or YAML file, from templates of kindlm.

The statements never depend on the plan. Text of the plan occurs only inside string literals, not
even in comments: in code, only a literal is safe, and limiting a text to one line is not enough.
"""

from __future__ import annotations

import re
import textwrap
import unicodedata
from collections.abc import Iterable, Iterator
from typing import Any

from kindlm.generate.questions import Profile
from kindlm.generate.suite_text import WIDTH, Comment, escaped, yaml_text
from kindlm.generate.test_plan import Order, PlannedScenario, PlannedTurn


def python_literal(text: str) -> str:
    """Return the literal of a text: in double quotes, unless single ones save escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return f"{quote}{escaped(text, quote)}{quote}"


_LONGEST_SLUG = 40


def slug(text: str) -> str:
    """Return the words of a text as a part of a file's name, and of a function's.

    That is lower case, digits and underscores, with letters of any alphabet.
    """
    letters = unicodedata.normalize("NFKC", text.lower())
    # Not all that counts as a letter may stand in a name.
    named = "".join(char if f"a{char}".isidentifier() else "_" for char in letters)
    return re.sub("_+", "_", named).strip("_")[:_LONGEST_SLUG].rstrip("_") or "scenario"


def rendered(scenario: PlannedScenario, order: Order) -> tuple[str, str]:
    """Return the name of a scenario's file, and its text."""
    stem = f"{slug(scenario.category)}_{slug(scenario.title)}"
    if order.form == "yaml":
        return f"{stem}.yaml", scenario_yaml(scenario, order.written_agent)
    return f"test_{stem}.py", python_text(scenario, stem, order.written_agent)


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
    traits = (f"{name}={python_literal(text)}" for name, text in scenario.user.items())
    options = [python_literal(scenario.title), f'tags=["{scenario.category}", "generated"]']
    if agent is not None:
        options.append(f"agent={python_literal(agent)}")
    lines = [
        *_docstring(f"{scenario.category}: {scenario.title}", "", _ORIGIN),
        "",
        "from kindlm import Persona, Trial, scenario",
        "",
        *_exploded("user = Persona", traits),
        "",
        "",
        *_exploded("@scenario", options),
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
    lines = textwrap.wrap(harmless, WIDTH - len(indent) - len('"""""".'))
    if lines[-1][-1] not in ".!?":
        lines[-1] += "."
    lines[0] = f'"""{lines[0]}'
    if more is not None:
        lines += ["", more]
    if len(lines) == 1:
        return [f'{indent}{lines[0]}"""']
    return [f"{indent}{line}".rstrip() for line in [*lines, '"""']]


def _turn(turn: PlannedTurn, reply: str) -> Iterator[str]:
    kept = f"{reply} = " if turn.is_checked else ""
    yield from _call(f"{kept}await t.agent.send", f"user.says({python_literal(turn.says)})")
    if turn.right:
        yield f"{_INDENT}# {_RIGHT}"
    for criterion in turn.right:
        yield from _call("t.judge", reply, python_literal(criterion))
    if turn.wrong:
        yield f"{_INDENT}# {_WRONG}"
        rules = "".join(f"\n{_INDENT * 3}{python_literal(rule)}," for rule in turn.wrong)
        yield from _exploded("t.guardrail", (reply, f"must_not=[{rules}\n{_INDENT * 2}]"), _INDENT)
    if turn.tone:
        yield f"{_INDENT}# {_TONE}"
        yield from _call("t.sentiment", reply, python_literal(turn.tone))
    if turn.tools:
        yield f"{_INDENT}# {_TOOLS}"
    for tool in turn.tools:
        yield from _call(f"t.check({reply}).tool_called", python_literal(tool))


def _call(function: str, *arguments: str) -> list[str]:
    """Return a call on one line; with a line for each argument if it is too long for that."""
    line = f"{_INDENT}{function}({', '.join(arguments)})"
    return [line] if len(line) <= WIDTH else _exploded(function, arguments, _INDENT)


def _exploded(function: str, arguments: Iterable[str], indent: str = "") -> list[str]:
    """Return a call with a line for each argument: no formatter joins them."""
    inner = (f"{indent}{_INDENT}{argument}," for argument in arguments)
    return [f"{indent}{function}(", *inner, f"{indent})"]


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


def profile_text(profile: Profile) -> str:
    """Return a profile as a file that people read: YAML."""
    return yaml_text({Comment(_ABOUT_PROFILE): None, **profile})


_ABOUT_PROFILE = (
    "How kindlm gen understood the agent. To correct it, change the description you pass:"
    "\n--description, or --system-prompt."
)
