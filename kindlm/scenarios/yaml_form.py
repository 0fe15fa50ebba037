"""Compiles scenarios in YAML to scripts; each check has its line in the file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path as FilePath
from typing import TYPE_CHECKING, Annotated, Any

from pydantic import AfterValidator, BaseModel, Field, create_model

from kindlm.checks.output import matches_anything
from kindlm.config.diagnostics import Reporter
from kindlm.config.expect import warn_of_text
from kindlm.config.json_schemas import report_inline_schema
from kindlm.config.long_form import write_out_section
from kindlm.config.validation import fit, kind_of
from kindlm.dataclass import dataclass
from kindlm.document import Document, Node, Path, cases_of, texts
from kindlm.errors import KindlmError, SourceLocation
from kindlm.ports import Stage
from kindlm.scenarios.api import ScenarioSpec
from kindlm.scenarios.checks import Checks
from kindlm.scenarios.finding import FoundScenarios, Scenario
from kindlm.scenarios.function_script import record_nothing_checked
from kindlm.scenarios.trial import HEAVIEST, Checked, Trial
from kindlm.scenarios.under_test import AgentError
from kindlm.section import WHOLE, Maybe, Positive, Repeat, Score, Seconds, Solid, Table, Text
from kindlm.values import check_pattern
from kindlm.yaml_document import read_documents


class CheckTable(Table):
    """A check; a value in place of the mapping is the value of its required key."""

    @classmethod
    def main_key(cls, value: Any) -> str | None:
        """Return the key for a value that is written in place of the mapping."""
        needed = (name for name, field in cls.model_fields.items() if field.is_required())
        return None if value is None or isinstance(value, dict) else next(needed, None)


class SchemaConfig(Table):
    """A JSON Schema."""

    schema_: dict[str, Any] = Field(alias="schema")

    @classmethod
    def main_key(cls, value: Any) -> str | None:
        """Return `schema` for a bare schema: `schema` itself is not a keyword of JSON Schema."""
        return "schema" if isinstance(value, dict) and value.keys() != {"schema"} else None


Weight = Annotated[float, Field(gt=0, le=HEAVIEST)]


class WeightedChecks(Table):
    """Checks of an answer or of a conversation; `weight` is the weight of each check."""

    weight: Weight = 1.0


def _maybe(kind: Any) -> Any:
    return Maybe[kind]  # type: ignore[misc]


_SOLID: dict[str, Any] = {"text": (Solid, ...)}
_TEXT: dict[str, Any] = {"text": (Text, ...)}
_PATTERN: dict[str, Any] = {"pattern": (Annotated[Text, AfterValidator(check_pattern)], ...)}
_CALL: dict[str, Any] = {"tool": (Text, ...), "arguments": (_maybe(dict[str, Any]), None)}
_LIMIT = Annotated[float, Field(ge=0)]

CONVERSATION_CHECKS: Mapping[str, dict[str, Any]] = {
    "equals": _SOLID,
    "starts_with": _SOLID,
    "contains_any": {"texts": (Annotated[list[Solid], Field(min_length=1)], ...)},
    "contains": _TEXT,
    "not_contains": _TEXT,
    "matches": _PATTERN,
    "not_matches": _PATTERN,
    "latency": {"max_ms": (_LIMIT, ...)},
    "cost": {"max_usd": (_LIMIT, ...)},
    "token_usage": {"max_tokens": (Annotated[int, Field(ge=0), WHOLE], ...)},
    "tool_called": _CALL,
    "tool_not_called": _CALL,
    "judge": {
        "criteria": (Annotated[list[Text], Field(min_length=1)], ...),
        "threshold": (Positive, 3),
        "scale": (Positive, 5),
    },
}
"""Checks of answers and of whole conversations, each with the type and default of its keys."""

_OF_TEXTS = ("contains", "not_contains", "contains_any", "matches", "not_matches")
"""Checks that compare answers with texts or patterns."""

ANSWER_CHECKS: Mapping[str, Any] = {
    "json_schema": SchemaConfig,
    "sentiment": {"tone": (Text, ...)},
    "guardrail": {"must": (list[Text], []), "must_not": (list[Text], [])},
    "factuality": {"ground_truth": (Text, ...), "context": (_maybe(str), None)},
}
"""Checks of answers only."""


def _checks_config(
    name: str, base: type[Table], checks: Mapping[str, Any], **others: tuple[Any, Any]
) -> Any:
    fields: dict[str, Any] = {}
    for each, keys in checks.items():
        is_table = isinstance(keys, dict)
        part = create_model(each, __base__=CheckTable, **keys) if is_table else keys
        fields[each] = (_maybe(part), None)
    return create_model(name, __base__=base, **fields | others)


if TYPE_CHECKING:
    ConversationConfig = WeightedChecks
    ChecksConfig = WeightedChecks
else:
    # Hints list keys in this order: checks before their weight.
    weight = (Weight, 1.0)
    ConversationConfig = _checks_config(
        "ConversationConfig", Table, CONVERSATION_CHECKS, weight=weight
    )
    ChecksConfig = _checks_config("ChecksConfig", ConversationConfig, ANSWER_CHECKS)

CHECKS = tuple(name for name in ChecksConfig.model_fields if name != "weight")

SomeChecks = Annotated[list[ChecksConfig], Field(min_length=1)]


class PersonaConfig(Table):
    """The person who talks to the agent, for readers."""

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
    """The purpose of the scenario, for readers."""
    persona: Maybe[PersonaConfig] = None
    turns: list[TurnConfig] = Field(min_length=1)
    assertions: SomeChecks = Field(default=[])
    conversation: list[ConversationConfig] = Field(default=[], min_length=1)
    tags: list[Text] = Field(default=[])
    repeats: Repeat = 1
    pass_rate: Score = 1.0
    timeout: Maybe[Seconds] = None
    agent: Maybe[dict[str, Any]] = None


def read_scenarios(file: FilePath, data: bytes) -> tuple[FoundScenarios, int]:
    """Read a YAML file: one scenario, several documents, or a list. Never raises.

    Returns:
        The scenarios without an error, and the number of all scenarios.
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
        reporter.sort_phase()
        diagnostics += reporter.diagnostics
        if scenario is not None:
            scenarios.append(scenario)
    return FoundScenarios(tuple(scenarios), tuple(diagnostics)), len(found)


@dataclass(frozen=True, slots=True)
class _Check:
    """A check of an answer or of the conversation, with its place.

    The name and the keys are those of a method of `Checks`; for a check by a judge, of the trial.
    """

    name: str
    value: BaseModel
    weight: float
    where: SourceLocation

    def ask(self, trial: Trial, what: Checked) -> None:
        arguments = self.value.model_dump(by_alias=True)
        if hasattr(Checks, self.name):
            getattr(trial.check(what, weight=self.weight), self.name)(**arguments)
        else:
            getattr(trial, self.name)(what, **arguments, weight=self.weight)


@dataclass(frozen=True, slots=True)
class YamlScript:
    """Sends the messages of a scenario in YAML; implements `suite.Script`.

    `turns` are the messages, each with the checks of the answer to it.
    """

    turns: tuple[tuple[str, tuple[_Check, ...]], ...]
    conversation: tuple[_Check, ...]
    where: SourceLocation

    async def run(self, stage: Stage) -> KindlmError | None:
        """Send each message, and check its answer; see `suite.Script`."""
        where = self.where
        trial = Trial(stage, lambda: where)
        try:
            for message, checks in self.turns:
                reply = await trial.agent.send(message)
                for check in checks:
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
    assert document.root is not None
    agent = document.root.child("agent")
    if agent is not None and isinstance(agent.value, str):
        document.root.put("agent", Node.mapping(agent, type=agent.leaf("http"), url=agent))
    document.root.locate()
    write_out_section(document.root, (ScenarioConfig,))
    if (config := fit(ScenarioConfig, value, reporter)) is None:
        return None
    turns = []
    for index, turn in enumerate(config.turns):
        path: Path = ("turns", index, "expect")
        checks = list(_checks(turn.expect, value["turns"][index].get("expect", ()), path, reporter))
        if turn is config.turns[-1]:
            of_last = value.get("assertions", ())
            checks += _checks(config.assertions, of_last, ("assertions",), reporter)
        turns.append((turn.says, tuple(checks)))
    whole = value.get("conversation", ())
    conversation = tuple(_checks(config.conversation, whole, ("conversation",), reporter))
    if not config.name.strip():
        reporter.error(("name",), "name must not be empty")
    if reporter.has_errors:
        return None
    tags, repeats, rate = tuple(config.tags), config.repeats, config.pass_rate
    spec = ScenarioSpec(config.name, tags, repeats, rate, config.timeout, config.agent)
    where = reporter.where(())
    script = YamlScript(tuple(turns), conversation, where)
    agent_where = reporter.where(("agent",)) if config.agent is not None else None
    return Scenario(config.name, spec, where, script, agent_where=agent_where)


def _checks(
    configs: Sequence[ConversationConfig], raw: Sequence[Any], path: Path, reporter: Reporter
) -> Iterator[_Check]:
    for index, (config, raw_checks) in enumerate(zip(configs, raw, strict=True)):
        place = (*path, index)
        names = [name for name in raw_checks if name in CHECKS]
        if not names:
            message = f"{reporter.place(place)} holds no check"
            reporter.error(place, message, "Add one, such as `contains:`")
        for name in names:
            value = getattr(config, name)
            _check_values(name, value, (*place, name), reporter)
            if name in _OF_TEXTS:
                for at, text in texts(raw_checks[name], (*place, name)):
                    warn_of_text(at, text, reporter)
            elif name in ("tool_called", "tool_not_called"):
                warn_of_text((*place, name, "tool"), value.tool, reporter, is_name=True)
            yield _Check(name, value, config.weight, reporter.where((*place, name)))


def _check_values(name: str, value: Any, path: Path, reporter: Reporter) -> None:
    if name == "judge" and value.threshold > value.scale:
        message = f"threshold is {value.threshold:g}, and the scale ends at {value.scale:g}"
        reporter.error((*path, "threshold"), message, "Lower it, or set `scale`")
    elif name == "judge" and value.threshold < 1 < value.scale:
        message = f"threshold is {value.threshold:g} of {value.scale:g}: nearly every answer passes"
        hint = f"Write points, such as {value.scale * value.threshold:g}, or set `scale: 1`"
        reporter.warning((*path, "threshold"), message, hint, reason="share")
    if name == "matches" and matches_anything(value.pattern):
        message = "This check can never fail: it matches every text, also an empty one"
        reporter.warning(path, message, "Change or remove it", reason="never_fails")
    if name == "guardrail" and not (value.must or value.must_not):
        reporter.error(path, "guardrail has no rule", "Add `must:` or `must_not:`")
    if name == "json_schema":
        report_inline_schema(path, value.schema_, "json_schema", reporter)
