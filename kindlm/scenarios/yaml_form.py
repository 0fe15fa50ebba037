"""Scenarios in YAML: compiled to what functions in Python are, with the place of each check."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import Annotated, Any, get_args

from pydantic import BaseModel, BeforeValidator, Field

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Document, Path, cases_of, dotted
from kindlm.config.json_schemas import report_inline_schema
from kindlm.config.validation import fit, kind_of
from kindlm.config.yaml_document import read_documents
from kindlm.dataclass import dataclass
from kindlm.errors import KindlmError, SourceLocation
from kindlm.ports import Stage
from kindlm.scenarios.api import ScenarioSpec
from kindlm.scenarios.checks import Checks
from kindlm.scenarios.finding import FoundScenarios, Scenario
from kindlm.scenarios.function_script import record_nothing_checked
from kindlm.scenarios.trial import Checked, Trial
from kindlm.scenarios.under_test import AgentError, Persona
from kindlm.section import WHOLE, Maybe, Positive, Repeat, Score, Seconds, Solid, Table, Text
from kindlm.values import check_pattern

Limit = Annotated[float, Field(ge=0)]
Whole = Annotated[int, Field(ge=0), WHOLE]


class TextConfig(Table):
    """A check of the text."""

    text: Text


class SolidConfig(Table):
    """A check of the text, for which spaces are nothing."""

    text: Solid


class TextsConfig(Table):
    """A check of the text, with some texts."""

    texts: Annotated[list[Solid], Field(min_length=1)]


class PatternConfig(Table):
    """A regular expression."""

    pattern: Annotated[Text, BeforeValidator(check_pattern)]


class SchemaConfig(Table):
    """A JSON Schema."""

    schema_: dict[str, Any] = Field(alias="schema")


class LatencyConfig(Table):
    """A limit of time."""

    max_ms: Limit


class TokensConfig(Table):
    """A limit of tokens."""

    max_tokens: Whole


class ToolConfig(Table):
    """A tool, and arguments that its call has to have among others."""

    tool: Text
    arguments: Maybe[dict[str, Any]] = None


class ToneConfig(Table):
    """A tone."""

    tone: Text


class JudgeConfig(Table):
    """Criteria, and how many points of the scale are enough for each."""

    criteria: Annotated[list[Text], Field(min_length=1)]
    threshold: Positive = 3
    scale: Positive = 5


class GuardrailConfig(Table):
    """Rules."""

    must: list[Text] = Field(default=[])
    must_not: list[Text] = Field(default=[])


class FactsConfig(Table):
    """What is true."""

    ground_truth: Text
    context: Maybe[str] = None


class CostConfig(Table):
    """A limit of money."""

    max_usd: Limit


class ConversationConfig(Table):
    """Checks that a whole conversation can have; `weight` is what each of them counts for."""

    equals: Maybe[SolidConfig] = None
    starts_with: Maybe[SolidConfig] = None
    contains_any: Maybe[TextsConfig] = None
    contains: Maybe[TextConfig] = None
    not_contains: Maybe[TextConfig] = None
    matches: Maybe[PatternConfig] = None
    not_matches: Maybe[PatternConfig] = None
    latency: Maybe[LatencyConfig] = None
    cost: Maybe[CostConfig] = None
    token_usage: Maybe[TokensConfig] = None
    tool_called: Maybe[ToolConfig] = None
    tool_not_called: Maybe[ToolConfig] = None
    judge: Maybe[JudgeConfig] = None
    weight: Positive = 1.0


class ChecksConfig(ConversationConfig):
    """Checks that an answer can have."""

    json_schema: Maybe[SchemaConfig] = None
    sentiment: Maybe[ToneConfig] = None
    guardrail: Maybe[GuardrailConfig] = None
    factuality: Maybe[FactsConfig] = None


CHECKS = {
    name: next((key for key, each in part.model_fields.items() if each.is_required()), None)
    for name, field in ChecksConfig.model_fields.items()
    for part in get_args(field.annotation)
    if isinstance(part, type) and issubclass(part, Table)
}
"""The checks, and the key that each has to have: any value but a mapping stands for it."""

SomeChecks = Annotated[list[ChecksConfig], Field(min_length=1)]


class PersonaConfig(Table):
    """Who talks to the agent."""

    role: Text
    name: Maybe[str] = None
    tone: Maybe[str] = None
    backstory: Maybe[str] = None
    context: Maybe[dict[str, Any]] = None


class TurnConfig(Table):
    """A message, and checks of the answer to it."""

    says: str
    expect: SomeChecks = Field(default=[])


class ScenarioConfig(Table):
    """A scenario."""

    name: Text
    description: Maybe[str] = None
    """What it is good for, for those who read it."""
    persona: Maybe[PersonaConfig] = None
    turns: list[TurnConfig] = Field(min_length=1)
    assertions: SomeChecks = Field(default=[])
    conversation: list[ConversationConfig] = Field(default=[], min_length=1)
    tags: list[Text] = Field(default=[])
    repeats: Repeat = 1
    pass_rate: Score = 1.0
    timeout: Maybe[Seconds] = None
    agent: Maybe[dict[str, Any]] = None


def spelt_out(value: Mapping[str, Any]) -> dict[str, Any]:
    """Return a scenario with the short forms written at length.

    A single mapping stands for a list of one, a text for one rule or criterion, an `agent` that is
    a text for its URL, and a check's value for the first of its keys. Other shapes stay.
    """
    long = dict(value)
    if isinstance(long.get("agent"), str):
        long["agent"] = {"type": "http", "url": long["agent"]}
    for key in ("assertions", "conversation"):
        if key in long:
            long[key] = _checks_at_length(long[key])
    if isinstance(long.get("turns"), list):
        long["turns"] = [_turn_at_length(turn) for turn in long["turns"]]
    return long


def _turn_at_length(turn: Any) -> Any:
    if not isinstance(turn, dict) or "expect" not in turn:
        return turn
    return {**turn, "expect": _checks_at_length(turn["expect"])}


def _checks_at_length(value: Any) -> Any:
    found = [value] if isinstance(value, dict) else value
    if not isinstance(found, list):
        return found
    return [
        {key: _check_at_length(key, item) for key, item in each.items()}
        if isinstance(each, dict)
        else each
        for each in found
    ]


def _check_at_length(name: Any, value: Any) -> Any:
    if name == "json_schema":
        # The argument's name is not a keyword of JSON Schema.
        is_short = isinstance(value, dict) and value.keys() != {"schema"}
        return {"schema": value} if is_short else value
    short = CHECKS.get(name) if isinstance(name, str) else None
    if short is not None and not isinstance(value, dict) and value is not None:
        value = {short: value}
    if name in ("guardrail", "judge", "contains_any") and isinstance(value, dict):
        return {key: [item] if isinstance(item, str) else item for key, item in value.items()}
    return value


def read_scenarios(file: FilePath, data: bytes) -> tuple[FoundScenarios, int]:
    """Read a YAML file: one scenario, several documents, or a list. Never raises.

    Returns:
        The scenarios as far as there is no error, and how many there are.
    """
    documents = read_documents(data)
    whole = Reporter(str(file), documents)
    whole.problems()
    found = cases_of(documents)
    if not found and not whole.has_errors:
        whole.error((), "The file holds no scenario", "Begin with `name:`")
    scenarios: list[Scenario] = []
    diagnostics = list(whole.diagnostics)
    for document in found:
        reporter = Reporter(str(file), document)
        scenario = _scenario(document, reporter)
        if scenario is not None and scenario.name in {each.name for each in scenarios}:
            message = f'The name "{scenario.name}" occurs twice'
            reporter.error(("name",), message, "Give one another name", reason="duplicate_test")
        reporter.sort_phase(0)
        diagnostics += reporter.diagnostics
        if scenario is not None:
            scenarios.append(scenario)
    return FoundScenarios(tuple(scenarios), tuple(diagnostics)), len(found)


@dataclass(frozen=True, slots=True)
class _Check:
    """A check of an answer or of the conversation, and where it stands.

    Its name and its keys are those of a method and its arguments: of `Checks`, or of the trial,
    for one that a judge decides.
    """

    name: str
    value: BaseModel
    weight: float
    where: SourceLocation

    def ask(self, trial: Trial, what: Checked) -> None:
        written = self.value.model_dump(by_alias=True)
        if hasattr(Checks, self.name):
            getattr(trial.check(what, weight=self.weight), self.name)(**written)
        else:
            getattr(trial, self.name)(what, **written, weight=self.weight)


@dataclass(frozen=True, slots=True)
class _Turn:
    """A message, and the checks of the answer to it."""

    says: str
    checks: tuple[_Check, ...]


@dataclass(frozen=True, slots=True)
class YamlScript:
    """Says the messages of a scenario in YAML; implements `suite.Script`."""

    persona: Persona
    turns: tuple[_Turn, ...]
    conversation: tuple[_Check, ...]
    where: SourceLocation

    async def run(self, stage: Stage) -> KindlmError | None:
        """Send each message, and check the answer to it; see `suite.Script`."""
        where = self.where
        trial = Trial(stage, lambda: where)
        try:
            for turn in self.turns:
                reply = await trial.agent.send(self.persona.says(turn.says))
                for check in turn.checks:
                    where = check.where
                    check.ask(trial, reply)
        except AgentError:
            return None  # recorded where it happened
        for check in self.conversation:
            where = check.where
            check.ask(trial, trial.conversation)
        if not trial.checked:
            record_nothing_checked(stage, self.where)
        return None


def _scenario(document: Document, reporter: Reporter) -> Scenario | None:
    value = document.value
    if not isinstance(value, dict):
        message = f"A scenario must be a mapping, but is {kind_of(value)}"
        reporter.error((), message, "Begin with `name:`")
        return None
    config = fit(ScenarioConfig, spelt_out(value), reporter)
    if config is None:
        return None
    turns = list(_turns(config, value, reporter))
    whole = value.get("conversation")
    conversation = tuple(_checks(config.conversation, whole, ("conversation",), reporter))
    if not config.name.strip():
        reporter.error(("name",), "name must not be empty")
    if reporter.has_errors:
        return None
    if config.pass_rate == 0:
        message = "The test passes even if all its repeats fail"
        reporter.warning(("pass_rate",), message, "Change or remove it", reason="never_fails")
    spec = ScenarioSpec(
        config.name,
        tuple(config.tags),
        config.repeats,
        config.pass_rate,
        config.timeout,
        config.agent,
    )
    where = reporter.where(())
    persona = Persona(**dict(config.persona or PersonaConfig(role="user")))
    script = YamlScript(persona, tuple(turns), conversation, where)
    agent_where = reporter.where(("agent",)) if config.agent is not None else None
    return Scenario(config.name, spec, where, script, agent_where=agent_where)


def _turns(config: ScenarioConfig, raw: dict[str, Any], reporter: Reporter) -> Iterator[_Turn]:
    last = len(config.turns) - 1
    for at, turn in enumerate(config.turns):
        path: Path = ("turns", at, "expect")
        checks = list(_checks(turn.expect, raw["turns"][at].get("expect"), path, reporter))
        if at == last:
            written = raw.get("assertions")
            checks += _checks(config.assertions, written, ("assertions",), reporter)
        yield _Turn(turn.says, tuple(checks))


def _checks(
    configs: Sequence[ConversationConfig], raw: Any, path: Path, reporter: Reporter
) -> Iterator[_Check]:
    """Yield the checks in the order in which they are written."""
    for at, config in enumerate(configs):
        is_single = isinstance(raw, dict)
        written, place = (raw, path) if is_single else (raw[at], (*path, at))
        names = [name for name in written if name in CHECKS]
        if not names:
            message = f"{dotted(place)} holds no check"
            reporter.error(place, message, "Add one, such as `contains:`")
        for name in names:
            value = getattr(config, name)
            _check_values(name, value, (*place, name), reporter)
            yield _Check(name, value, config.weight, reporter.where((*place, name)))


def _check_values(name: str, value: Any, path: Path, reporter: Reporter) -> None:
    if name == "judge" and value.threshold > value.scale:
        message = f"threshold is {value.threshold:g}, and the scale ends at {value.scale:g}"
        reporter.error((*path, "threshold"), message, "Lower it, or set `scale`")
    if name == "guardrail" and not (value.must or value.must_not):
        reporter.error(path, "guardrail has no rule", "Add `must:` or `must_not:`")
    if name == "json_schema":
        report_inline_schema(path, value.schema_, "json_schema", reporter)
