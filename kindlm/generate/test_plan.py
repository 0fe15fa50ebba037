"""Planned scenarios: the order for them, their reading from a model's answer, and their files.

`read_plan` leaves out unfit scenarios. `rendered` makes the file of a scenario, Python or YAML,
from templates of kindlm. Text of the plan occurs only in docstrings and escaped string literals,
never as code or in comments.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import field
from itertools import islice, zip_longest
from pathlib import Path
from typing import Any, Literal

from kindlm.checks.judging import check_form
from kindlm.dataclass import dataclass
from kindlm.errors import Err, Ok, Result, misuse
from kindlm.generate.suite_text import WIDTH, Comment, escaped, one_line, slug, yaml_text
from kindlm.model_answers import object_in
from kindlm.suggestions import hint_for
from kindlm.suite import AgentTarget
from kindlm.wording import cut, shown

TOOL_USE = "tool-use"
"""The category whose scenarios need a tool."""

CATEGORIES: Mapping[str, str] = {
    "happy": "what the agent is for, asked in an ordinary way",
    "edge": "unusual, incomplete, contradictory or ambiguous requests, and values at a limit",
    "adversarial": "attempts to change its instructions, to make it play another part, or to lead"
    " it away from its subject",
    "guardrail": "personal data of others, invented facts, unsafe advice, and promises that it may"
    " not make",
    "multi-turn": "conversations of at least two messages, of which later ones build on earlier"
    " ones",
    TOOL_USE: "requests that need a tool: the right one, and what becomes of its failures",
    "tone": "how it sounds towards users who are angry, sad, hurried or rude",
}
"""The categories in order, each with its description."""

_FEWEST = 2
"""The fewest scenarios to ask for in a category, since some may be unfit."""


def parse_categories(text: str | None) -> Result[tuple[str, ...]]:
    """Return the categories of a list such as `edge,tone`, in the order of `CATEGORIES`."""
    if text is None:
        return Ok(tuple(CATEGORIES))
    names = [name.strip().lower().replace("_", "-") for name in text.split(",") if name.strip()]
    for name in names or [text]:
        if name not in CATEGORIES:
            hint = hint_for(name, CATEGORIES, "Known categories")
            return Err(misuse(f'Unknown category "{name}".', hint))
    return Ok(tuple(name for name in CATEGORIES if name in names))


def wanted(count: int, categories: Sequence[str]) -> dict[str, int]:
    """Return the number of scenarios to ask for by category: its share of `count`, at least two.

    If there are more categories than scenarios, the last categories are left out.
    """
    whole, left = divmod(count, len(categories))
    dealt = {name: whole + (at < left) for at, name in enumerate(categories)}
    return {name: max(_FEWEST, share) for name, share in dealt.items() if share}


@dataclass(frozen=True, slots=True)
class PlannedScenario:
    """A planned conversation; `why` says what it could find.

    `user` are the traits of the user, by the fields of a `Persona`. `turns` are messages and their
    checks, as in a scenario in YAML. A comment precedes each kind of checks.
    """

    category: str
    title: str
    why: str
    user: Mapping[str, str]
    turns: tuple[Mapping[str, Any], ...]


def in_turn(
    scenarios: Sequence[PlannedScenario], categories: Sequence[str], count: int
) -> list[PlannedScenario]:
    """Return `count` scenarios, picked from the categories in turn, and sorted by category."""
    piles = [[each for each in scenarios if each.category == name] for name in categories]
    dealt = (scenario for row in zip_longest(*piles) for scenario in row if scenario is not None)
    return sorted(islice(dealt, count), key=lambda each: categories.index(each.category))


@dataclass(frozen=True, slots=True)
class Order:
    """What to generate.

    `agent` is the agent to ask. `written_agent` is the URL for the files, None if the configuration
    names the agent. Files are written into `folder`; `root` is that of the project.
    """

    count: int
    categories: tuple[str, ...]
    form: Literal["python", "yaml"]
    folder: Path
    root: Path
    description: str | None = None
    system_prompt: str | None = None
    agent: AgentTarget | None = None
    written_agent: str | None = None
    seed: int | None = None
    force: bool = False


SCENARIO: Mapping[str, Any] = {
    "category": "its category",
    "title": "a few words",
    "why": "what it would find",
    "user": {"role": "", "tone": "", "backstory": ""},
    "turns": [{"says": "a message", "right": [""], "wrong": [""], "tone": "", "tools": [""]}],
}
"""The form of a scenario in a model's answer."""

_LONGEST_TITLE = 100
_LONGEST_RULE = 500
_LONGEST_TONE = 60
_LONGEST_MESSAGE = 4_000
_MOST_TURNS = 8
_MOST_RULES = 5


@dataclass(slots=True)
class ReadPlan:
    """The usable scenarios of a plan, and why others are left out."""

    scenarios: list[PlannedScenario] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)

    @property
    def titles(self) -> list[str]:
        """The titles of the scenarios."""
        return [scenario.title for scenario in self.scenarios]

    def read(self, text: str, categories: Collection[str], tools: Collection[str]) -> None:
        """Add the scenarios in a model's answer.

        `categories` are those that were asked for, `tools` the names of the agent's tools.

        Raises:
            ValueError: the answer is no plan; says why.
        """
        items = object_in(text).get("scenarios")
        if not isinstance(items, list):
            raise ValueError("its scenarios is not a list")  # noqa: TRY004 - a wrong answer
        for item in items:
            title = item.get("title", "") if isinstance(item, dict) else item
            try:
                self.scenarios.append(_scenario(item, categories, tools, self.titles))
            except ValueError as error:
                self.left_out.append(f"{shown(title, 60)}: {error}")


def _scenario(
    item: Any, categories: Collection[str], tools: Collection[str], taken: Collection[str]
) -> PlannedScenario:
    if not isinstance(item, dict):
        raise ValueError("it is not an object")  # noqa: TRY004 - a wrong answer
    check_form(SCENARIO, item)
    category = item["category"].strip().lower().replace("_", "-")
    title = one_line(item["title"], _LONGEST_TITLE)
    turns = tuple(_turn(each, tools) for each in item["turns"])
    faults = {
        f"this question was for none of category {shown(category, 60)}": category not in categories,
        "its title is empty": not title,
        "it occurs twice": title in taken,
        f"it has {len(turns)} messages": not 1 <= len(turns) <= _MOST_TURNS,
        "it has one message only": category == "multi-turn" and len(turns) == 1,
        "it needs no tool": category == TOOL_USE and not any(it["tools"] for it in item["turns"]),
        "it says nothing about the answers": not any("expect" in turn for turn in turns),
    }
    for fault, is_found in faults.items():
        if is_found:
            raise ValueError(fault)
    why = one_line(item["why"], _LONGEST_RULE)
    traits = {name: one_line(item["user"][name], _LONGEST_RULE) for name in SCENARIO["user"]}
    traits["role"] = traits["role"] or "user"
    user = {name: trait for name, trait in traits.items() if trait}
    return PlannedScenario(category, title, why or title, user, turns)


def _turn(item: Mapping[str, Any], tools: Collection[str]) -> dict[str, Any]:
    says = spoken(item["says"], _LONGEST_MESSAGE)
    if not says:
        raise ValueError("a message of it is empty")
    needed = tuple(dict.fromkeys(name.strip() for name in item["tools"]))
    unknown = next((name for name in needed if name not in tools), None)
    if unknown is not None:
        raise ValueError(f"the agent has no tool {shown(unknown, 60)}")
    wrong, tone = _rules(item["wrong"]), one_line(item["tone"], _LONGEST_TONE)
    kinds: dict[str, list[Mapping[str, Any]]] = {
        "A judge scores whether the answer meets this criterion.": [
            {"judge": criterion} for criterion in _rules(item["right"])
        ],
        "A judge decides whether the answer follows each rule.": (
            [{"guardrail": {"must_not": wrong}}] if wrong else []
        ),
        "The tone of the answer.": [{"sentiment": tone}] if tone else [],
        "The tools that the answer needs.": [{"tool_called": name} for name in needed],
    }
    checks = list[Comment | Mapping[str, Any]]()
    for about, of_kind in kinds.items():
        checks += [Comment(about), *of_kind] if of_kind else []
    return {"says": says} | ({"expect": checks} if checks else {})


def _rules(texts: list[str]) -> list[str]:
    rules = (one_line(text, _LONGEST_RULE) for text in texts[:_MOST_RULES])
    return list(dict.fromkeys(filter(None, rules)))


_UNSTORABLE = re.compile("[\x00\ud800-\udfff]")
_LONGEST_NAME = 100


def spoken(text: str, limit: int) -> str:
    """Return a message of at most `limit` characters, without those that no file can hold."""
    return cut(_UNSTORABLE.sub("\N{REPLACEMENT CHARACTER}", text[: limit + 1]), limit).strip()


def is_name(text: str) -> bool:
    """Return whether a text can be the name of a tool: short and printable."""
    return 0 < len(text) <= _LONGEST_NAME and text.isprintable() and text == text.strip()


# The files


_INDENT = "    "
_ORIGIN = "Written by `kindlm gen` from the plan of a model. Edit it as you like."


def rendered(scenario: PlannedScenario, order: Order) -> tuple[str, str]:
    """Return the name and the text of a scenario's file."""
    stem, agent = f"{slug(scenario.category)}_{slug(scenario.title)}", order.written_agent
    if order.form == "yaml":
        document: dict[str | Comment, Any] = {
            Comment(_ORIGIN): None,
            "name": scenario.title,
            "description": scenario.why,
            "tags": [scenario.category, "generated"],
            **({} if agent is None else {"agent": agent}),
            "persona": dict(scenario.user),
            "turns": list(scenario.turns),
        }
        return f"{stem}.yaml", yaml_text(document)
    traits = (f"{name}={_python_literal(text)}" for name, text in scenario.user.items())
    options = [_python_literal(scenario.title), f'tags=["{scenario.category}", "generated"]']
    if agent is not None:
        options.append(f"agent={_python_literal(agent)}")
    lines = [
        *_docstring(f"{scenario.category}: {scenario.title}", "", f"\n\n{_ORIGIN}"),
        "",
        "from kindlm import Persona, Trial, scenario",
        "",
        *_exploded("user = Persona", traits),
        "",
        "",
        *_exploded("@scenario", options),
        f"async def test_{stem}(t: Trial) -> None:",
        *_docstring(scenario.why, _INDENT),
    ]
    for number, turn in enumerate(scenario.turns, start=1):
        lines += [*([""] if number > 1 else []), *_turn_lines(turn, f"r{number}")]
    return f"test_{stem}.py", "\n".join(lines) + "\n"


def _docstring(text: str, indent: str, more: str = "") -> list[str]:
    """Return the lines of a docstring that begins with a text of one line.

    Quotes could end it, and backslashes escape: both are replaced.
    """
    harmless = text.replace('"', "'").replace("\\", "/")
    harmless += "" if harmless[-1] in ".!?" else "."
    body = textwrap.fill(harmless, WIDTH - len(indent) - len('""""""')) + more
    end = "\n" if "\n" in body else ""
    return textwrap.indent(f'"""{body}{end}"""', indent).split("\n")


def _turn_lines(turn: Mapping[str, Any], reply: str) -> Iterator[str]:
    kept = f"{reply} = " if "expect" in turn else ""
    yield from _call(f"{kept}await t.agent.send", f"user.says({_python_literal(turn['says'])})")
    for check in turn.get("expect", ()):
        if isinstance(check, Comment):
            yield f"{_INDENT}# {check.text}"
            continue
        ((name, value),) = check.items()
        if name == "tool_called":
            yield from _call(f"t.check({reply}).{name}", _python_literal(value))
        elif isinstance(value, str):
            yield from _call(f"t.{name}", reply, _python_literal(value))
        else:
            lines = (f"\n{_INDENT * 3}{_python_literal(rule)}," for rule in value["must_not"])
            yield from _call(f"t.{name}", reply, f"must_not=[{''.join(lines)}\n{_INDENT * 2}]")


def _call(function: str, *arguments: str) -> list[str]:
    """Return a call on one line, or with a line for each argument if it is too long."""
    line = f"{_INDENT}{function}({', '.join(arguments)})"
    fits = len(line) <= WIDTH and "\n" not in line
    return [line] if fits else _exploded(function, arguments, _INDENT)


def _exploded(function: str, arguments: Iterable[str], indent: str = "") -> list[str]:
    """Return a call with a line for each argument, and a comma after the last one."""
    inner = (f"{indent}{_INDENT}{argument}," for argument in arguments)
    return [f"{indent}{function}(", *inner, f"{indent})"]


def _python_literal(text: str) -> str:
    """Return a string literal: in double quotes, unless single quotes save escapes."""
    quote = "'" if text.count('"') > text.count("'") else '"'
    return f"{quote}{escaped(text, quote)}{quote}"
