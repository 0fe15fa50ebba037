"""From chosen scenarios to files that load: their names and texts."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from kindlm.generate.literals import keyed
from kindlm.generate.order import Order
from kindlm.generate.plan import PlannedScenario
from kindlm.generate.profile import AgentProfile
from kindlm.generate.python_form import python_text
from kindlm.generate.texts import slug
from kindlm.generate.writing import free_name
from kindlm.generate.yaml_form import yaml_text

__all__ = ["RenderedFile", "profile_text", "rendered"]


@dataclass(frozen=True, slots=True)
class RenderedFile:
    """A scenario as it is to be written: the name of its file, and the text."""

    name: str
    text: str
    scenario: PlannedScenario


def rendered(scenarios: Sequence[PlannedScenario], order: Order) -> Iterator[RenderedFile]:
    """Yield the files of scenarios; no two have the same name, nor that of a file there is."""
    taken: list[str] = []
    for scenario in scenarios:
        stem = f"{slug(scenario.category)}_{slug(scenario.title)}"
        before, suffix = ("test_", ".py") if order.form == "python" else ("", ".yaml")
        name = free_name(f"{before}{stem}", suffix, taken, order.folder, force=order.force)
        taken.append(name)
        if order.form == "python":
            text = python_text(scenario, stem, order.written_agent)
        else:
            text = yaml_text(scenario, order.written_agent)
        yield RenderedFile(name, text, scenario)


def profile_text(profile: AgentProfile) -> str:
    """Return a profile as a file that people read: YAML."""
    lines = [
        "# What kindlm gen took the agent for. Mend it by what you tell of the agent:",
        "# --description, or --system-prompt.",
        *keyed("purpose: ", profile.purpose, ""),
        "tools:" if profile.tools else "tools: []",
    ]
    for tool in profile.tools:
        lines += [
            *keyed("- name: ", tool.name, "  "),
            *keyed("  description: ", tool.description, "  "),
        ]
    lines.append("constraints:" if profile.constraints else "constraints: []")
    for constraint in profile.constraints:
        lines += keyed("- ", constraint, "  ")
    return "\n".join([*lines, *keyed("tone: ", profile.tone, "")]) + "\n"
