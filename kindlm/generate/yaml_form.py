"""A planned scenario as a file of YAML: our template, with the plan's texts as scalars."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.generate.literals import keyed
from kindlm.generate.plan import PlannedScenario, PlannedTurn, PlannedUser

_ORIGIN = "# Written by `kindlm gen` from a plan that a model made; it is yours to edit."


def yaml_text(scenario: PlannedScenario, agent: str | None) -> str:
    """Return the file of a scenario.

    `agent` is the URL of the agent, if the project's configuration does not name it.
    """
    lines = [
        _ORIGIN,
        *keyed("name: ", scenario.title, ""),
        *keyed("description: ", scenario.why, ""),
        f"tags: [{scenario.category}, generated]",
        *(keyed("agent: ", agent, "") if agent is not None else ()),
        "persona:",
        *_persona(scenario.user),
        "turns:",
    ]
    for turn in scenario.turns:
        lines += _turn(turn)
    return "\n".join(lines) + "\n"


def _persona(user: PlannedUser) -> Iterator[str]:
    for name, value in (("role", user.role), ("tone", user.tone), ("backstory", user.backstory)):
        if value:
            yield from keyed(f"{name}: ", value, "  ")


def _turn(turn: PlannedTurn) -> Iterator[str]:
    yield from keyed("- says: ", turn.says, "  ")
    if turn.is_checked:
        yield "    expect:"
    deeper = " " * 6
    if turn.right:
        yield f"{deeper}# What a right answer does: a judge gives it points."
    for criterion in turn.right:
        yield from keyed("- judge: ", criterion, deeper)
    if turn.wrong:
        yield f"{deeper}# What it must not do: a judge says of each rule whether it is kept."
        yield f"{deeper}- guardrail:"
        yield f"{deeper}    must_not:"
    for rule in turn.wrong:
        yield from keyed("- ", rule, f"{deeper}      ")
    if turn.tone:
        yield f"{deeper}# How it sounds."
        yield from keyed("- sentiment: ", turn.tone, deeper)
    if turn.tools:
        yield f"{deeper}# What it takes to answer."
    for tool in turn.tools:
        yield from keyed("- tool_called: ", tool, deeper)
