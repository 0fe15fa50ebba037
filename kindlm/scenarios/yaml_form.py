"""Scenarios in YAML: compiled to what functions in Python are, with the place of each check."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path as FilePath
from typing import Any

from pydantic import BaseModel

from kindlm.config.diagnostics import Diagnostic, Reporter
from kindlm.config.document import Document, read_documents
from kindlm.config.json_schemas import schema_fault, warn_of_misspelt
from kindlm.config.places import Path, dotted
from kindlm.config.validation import fit, kind_of
from kindlm.errors import KindlmError, SourceLocation
from kindlm.formats.evalview.reading import cases_of
from kindlm.json_schema import has_no_rule
from kindlm.ports import Stage
from kindlm.scenarios.api import ScenarioSpec
from kindlm.scenarios.checks import Checks
from kindlm.scenarios.finding import Scenario
from kindlm.scenarios.persona import Persona
from kindlm.scenarios.reply import Reply
from kindlm.scenarios.script import record_nothing_checked
from kindlm.scenarios.stopping import AgentError
from kindlm.scenarios.trial import Trial
from kindlm.scenarios.yaml_schema import (
    CHECKS,
    ChecksConfig,
    PersonaConfig,
    ScenarioConfig,
    spelt_out,
)


@dataclass(frozen=True, slots=True)
class ReadScenarios:
    """The scenarios of a file, as far as there is no error; `tests` is how many there are."""

    scenarios: tuple[Scenario, ...]
    tests: int
    diagnostics: tuple[Diagnostic, ...]


def read_scenarios(file: FilePath, data: bytes) -> ReadScenarios:
    """Read a YAML file: one scenario, several documents, or a list. Never raises."""
    documents = read_documents(data)
    whole = Reporter(str(file), documents)
    whole.problems()
    found = cases_of(documents)
    if not found and not whole.has_errors:
        whole.error((), "The file holds no scenario", "Begin with `name:`", reason="schema")
    scenarios: list[Scenario] = []
    diagnostics = list(whole.diagnostics)
    for document in found:
        reporter = Reporter(str(file), document)
        scenario = _scenario(document, reporter)
        if scenario is not None and scenario.name in {each.name for each in scenarios}:
            message = f'The name "{scenario.name}" is there twice'
            reporter.error(("name",), message, "Give one another name", reason="duplicate_test")
        reporter.sort_phase(0)
        diagnostics += reporter.diagnostics
        if scenario is not None:
            scenarios.append(scenario)
    return ReadScenarios(tuple(scenarios), len(found), tuple(diagnostics))


@dataclass(frozen=True, slots=True)
class _Check:
    """A check of an answer, and where it stands.

    Its name and its keys are those of a method and its arguments: of `Checks`, or of the trial,
    for one that a judge decides.
    """

    name: str
    value: BaseModel
    weight: float
    where: SourceLocation

    def ask(self, trial: Trial, reply: Reply) -> None:
        written = self.value.model_dump(by_alias=True)
        if hasattr(Checks, self.name):
            getattr(trial.check(reply, weight=self.weight), self.name)(**written)
        else:
            getattr(trial, self.name)(reply, **written, weight=self.weight)


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
        if not trial.checked:
            record_nothing_checked(stage, self.where)
        return None


def _scenario(document: Document, reporter: Reporter) -> Scenario | None:
    value = document.value
    if not isinstance(value, dict):
        message = f"A scenario must be a mapping, but is {kind_of(value)}"
        reporter.error((), message, "Begin with `name:`", reason="schema")
        return None
    config = fit(ScenarioConfig, spelt_out(value), reporter)
    if config is None:
        return None
    turns = list(_turns(config, value, reporter))
    if not config.name.strip():
        reporter.error(("name",), "name must not be empty", reason="schema")
    if reporter.has_errors:
        return None
    spec = ScenarioSpec(
        config.name,
        tuple(config.tags),
        config.repeats,
        config.pass_rate,
        config.timeout,
        config.agent,
    )
    where = reporter.where(())
    script = YamlScript(_persona(config.persona), tuple(turns), where)
    agent_where = reporter.where(("agent",)) if config.agent is not None else None
    return Scenario(config.name, spec, where, script, agent_where=agent_where)


def _persona(config: PersonaConfig | None) -> Persona:
    if config is None:
        return Persona(role="user")
    return Persona(config.role, config.name, config.tone, config.backstory, config.context)


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
    configs: Sequence[ChecksConfig], raw: Any, path: Path, reporter: Reporter
) -> Iterator[_Check]:
    """Yield the checks in the order in which they are written."""
    for at, config in enumerate(configs):
        is_single = isinstance(raw, dict)
        written, place = (raw, path) if is_single else (raw[at], (*path, at))
        names = [name for name in written if name in CHECKS]
        if not names:
            message = f"{dotted(place)} holds no check"
            reporter.error(place, message, "Add one, such as `contains:`", reason="schema")
        for name in names:
            value = getattr(config, name)
            _check_values(name, value, (*place, name), reporter)
            yield _Check(name, value, config.weight, reporter.where((*place, name)))


def _check_values(name: str, value: Any, path: Path, reporter: Reporter) -> None:
    if name == "judge" and value.threshold > value.scale:
        message = f"threshold is {value.threshold:g}, and the scale ends at {value.scale:g}"
        reporter.error((*path, "threshold"), message, "Lower it, or set `scale`", reason="schema")
    if name == "guardrail" and not (value.must or value.must_not):
        reporter.error(path, "guardrail has no rule", "Add `must:` or `must_not:`", reason="schema")
    if name == "json_schema":
        _check_schema(value.schema_, path, reporter)


def _check_schema(schema: dict[str, Any], path: Path, reporter: Reporter) -> None:
    if (fault := schema_fault(schema)) is not None:
        message = f"json_schema is no valid JSON Schema: {fault}"
        hint = "See https://json-schema.org/understanding-json-schema"
        reporter.error(path, message, hint, reason="schema")
    elif has_no_rule(schema):
        message = "json_schema has no keyword of JSON Schema: any JSON would fit it"
        reporter.error(path, message, "Add one, such as `type: object`", reason="schema")
    else:
        warn_of_misspelt(path, schema, "json_schema", reporter)
