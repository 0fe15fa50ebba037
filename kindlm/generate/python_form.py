"""A planned scenario as a file of Python: our template, with the plan's texts as literals.

The statements are always the same ones, whatever was planned. Nothing of the plan stands anywhere
but inside string literals: also comments are all ours.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kindlm.generate.literals import WIDTH, docstring_lines, python_literal, python_parts, width_of
from kindlm.generate.plan import PlannedScenario, PlannedTurn, PlannedUser

_INDENT = "    "
_RIGHT = "# What a right answer does: a judge gives it points."
_WRONG = "# What it must not do: a judge says of each rule whether it is kept."
_TONE = "# How it sounds."
_TOOLS = "# What it takes to answer."


def python_text(scenario: PlannedScenario, name: str, agent: str | None) -> str:
    """Return the file of a scenario; `name` is that of its function, without `test_`: a slug.

    `agent` is the URL of the agent, if the project's configuration does not name it.
    """
    lines = [
        *_docstring(f"{scenario.category}: {scenario.title}", "", _ORIGIN),
        "",
        "from kindlm import Persona, Trial, scenario",
        "",
        *_persona(scenario.user),
        "",
        "",
        *_decorator(scenario, agent),
        f"async def test_{name}(t: Trial) -> None:",
        *_docstring(scenario.why, _INDENT),
    ]
    for number, turn in enumerate(scenario.turns, start=1):
        lines += [*([""] if number > 1 else []), *_turn(turn, f"r{number}")]
    return "\n".join(lines) + "\n"


_ORIGIN = "Written by `kindlm gen` from a plan that a model made; it is yours to edit."


def _docstring(text: str, indent: str, more: str | None = None) -> list[str]:
    lines = docstring_lines(text, WIDTH - len(indent) - len('"""""".'))
    if lines[-1][-1] not in ".!?":
        lines[-1] += "."
    lines[0] = f'"""{lines[0]}'
    if more is not None:
        lines += ["", more]
    if len(lines) == 1:
        return [f'{indent}{lines[0]}"""']
    return [f"{indent}{line}".rstrip() for line in [*lines, '"""']]


def _persona(user: PlannedUser) -> Iterator[str]:
    yield "user = Persona("
    for name, value in (("role", user.role), ("tone", user.tone), ("backstory", user.backstory)):
        if value:
            yield from _value(f"{name}=", value, _INDENT)
    yield ")"


def _decorator(scenario: PlannedScenario, agent: str | None) -> Iterator[str]:
    yield "@scenario("
    yield from _value("", scenario.title, _INDENT)
    yield f'{_INDENT}tags=["{scenario.category}", "generated"],'
    if agent is not None:
        yield from _value("agent=", agent, _INDENT)
    yield ")"


def _turn(turn: PlannedTurn, reply: str) -> Iterator[str]:
    yield from _sent(turn.says, f"{reply} = " if turn.is_checked else "")
    if turn.right:
        yield f"{_INDENT}{_RIGHT}"
    for criterion in turn.right:
        yield from _call("t.judge", criterion, reply)
    if turn.wrong:
        yield f"{_INDENT}{_WRONG}"
        yield from _guardrail(reply, turn.wrong)
    if turn.tone:
        yield f"{_INDENT}{_TONE}"
        yield from _call("t.sentiment", turn.tone, reply)
    if turn.tools:
        yield f"{_INDENT}{_TOOLS}"
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


def _guardrail(reply: str, rules: Sequence[str]) -> Iterator[str]:
    yield f"{_INDENT}t.guardrail("
    yield f"{_INDENT * 2}{reply},"
    yield f"{_INDENT * 2}must_not=["
    for rule in rules:
        yield from _value("", rule, _INDENT * 3)
    yield f"{_INDENT * 2}],"
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
