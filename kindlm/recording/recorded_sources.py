"""Answers from earlier runs, for a run: cassettes for its tools, answers for its targets."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Mapping
from functools import cache, partial
from typing import TYPE_CHECKING

from kindlm.config.diagnostics import Diagnostic
from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse
from kindlm.history.groups import whole_of
from kindlm.history.recorded_answers import (
    CachedAnswers,
    RescoredAnswers,
    earlier_runs,
    read_calls,
    runs_related_to,
)
from kindlm.history.recorded_attempts import held_conversation, recorded_repeats
from kindlm.history.replayed_answers import ReplayedAnswers, as_repeat
from kindlm.plan import Execution, PlannedSuite
from kindlm.ports import AnswerSource, Embedder, TranscriptSource
from kindlm.providers.embedders import find_embedder
from kindlm.providers.provider_registry import options_of
from kindlm.recording.request import Derived, RunRequest
from kindlm.strict_json import read_json
from kindlm.suite import Case, RecordedAnswer, SimulatedTool, Suite
from kindlm.wording import shown

if TYPE_CHECKING:
    from kindlm.gateway.replay import RecordedModels

# A run without any execution of the suite does not count, such as one that crashed or ran other
# tests. An earlier run with the same label may have executions. Shards of the run's own group come
# last, since one may begin after the other.
_RUN = """
SELECT l.run
  FROM run_list l JOIN runs r ON r.id = l.run
 WHERE (l.run = :run
        OR (:run = 'latest' AND r.ended = 'finished' AND r.mode = 'live')
        OR (:run <> 'latest' AND l.label = :run))
   AND EXISTS (
         SELECT 1 FROM suites s JOIN executions e ON e.suite = s.id
          WHERE s.run = l.run AND s.project = :project AND s.name = :suite
            AND e.status IS NOT 'skipped')
 ORDER BY l.run = :run DESC, coalesce(r.group_id = :group, 0), l.started_at DESC, l.run
 LIMIT 1
"""

# The answers come from one repeat: the first that passed, else the first. Error objects for
# unmatched calls are no tool results. Arguments that were no JSON object match no call.
_ANSWERS = """
SELECT a.body AS arguments, r.body AS response
  FROM tool_calls t
  JOIN contents a ON a.ref = t.arguments_ref
  JOIN contents r ON r.ref = t.response_ref AND r.body IS NOT NULL
 WHERE t.tool = :tool AND iif(json_valid(a.body), json_type(a.body), '') = 'object'
   AND (t.execution, t.attempt) = (
         SELECT e.source, e.source_attempt
           FROM executions e
           JOIN suites s ON s.id = e.suite
           JOIN tool_calls c ON c.execution = e.source AND c.attempt = e.source_attempt
          WHERE s.run IN (SELECT value FROM json_each(:runs))
            AND s.project = :project AND s.name = :suite AND e.test = :test AND c.tool = :tool
          ORDER BY e.status IS NOT 'passed', e.number
          LIMIT 1)
   AND NOT EXISTS (
         SELECT 1 FROM json_each(coalesce(t.problems, '[]')) p
          WHERE json_extract(p.value, '$.kind') = 'unmatched')
 ORDER BY t.position
"""


def with_recorded_answers(
    planned: PlannedSuite,
    db: sqlite3.Connection,
    warn: Callable[[Diagnostic], None],
    known: Mapping[str, str],
    group: str | None,
) -> Result[Suite]:
    """Return the suite with its cassettes filled, or the error of one that names no run.

    `known` has the runs that an earlier session found, by the names in the suite. `group` is that
    of the run.
    """
    suite = planned.suite
    run_of = cache(lambda name: _run_of(db, known.get(name, name), suite, group))
    # Each shard of a run has other tests.
    whole_json = cache(lambda run: json.dumps(whole_of(db, run)))
    cases: list[Case] = []
    found: dict[str, str] = {}
    for item in planned.cases:
        case, tools = item.case, list[SimulatedTool]()
        has_model = not suite.models.keys().isdisjoint(item.targets)
        calls_tools = has_model and not case.skip and case.command is None
        for tool in case.tools:
            if tool.cassette is None or not calls_tools:
                tools.append(tool)
                continue
            what, test = f"The cassette of the tool {shown(tool.name)}", shown(case.name)
            run = run_of(tool.cassette)
            if run is None:
                message = f"{what} in the test {test} cannot be read: no run {tool.cassette!r} has"
                message += f" executed tests of the suite {suite.name!r}"
                hint = "Record a run without the cassette first, or name another one: kindlm runs"
                code = ErrorCode.CONFIG_FILE_REF_ERROR
                return Err(KindlmError(code, message, hint, where=case.where))
            found[tool.cassette] = run
            names = {"project": suite.project, "suite": suite.name, "test": case.name}
            given = db.execute(_ANSWERS, {**names, "runs": whole_json(run), "tool": tool.name})
            recorded = tuple(RecordedAnswer(*map(read_json, answer)) for answer in given)
            if not recorded:
                message = f"{what} is empty: the run {run} has no result of it in the test {test}"
                hint = "A cassette answers in the test of the same name only: record that test"
                warn(Diagnostic(misuse(message, hint, case.where), "warning"))
            tools.append(replace(tool, recorded=recorded))
        cases.append(replace(case, tools=tuple(tools)))
    return Ok(replace(suite, cases=tuple(cases), cassettes=found))


def cassette_runs(planned: PlannedSuite, db: sqlite3.Connection, group: str) -> list[str]:
    """Return the runs that cassettes of the selected tests of a suite name, in a run of a group."""
    tools = [tool for item in planned.cases if item.selected for tool in item.case.tools]
    wanted = dict.fromkeys(tool.cassette for tool in tools if tool.cassette is not None)
    found = (_run_of(db, run, planned.suite, group) for run in wanted)
    return [each for run in found if run is not None for each in whole_of(db, run)]


def _run_of(db: sqlite3.Connection, wanted: str, suite: Suite, group: str | None) -> str | None:
    """Return the newest run of an id or label, or `latest`, that executed tests of the suite."""
    named = {"run": wanted, "project": suite.project, "suite": suite.name, "group": group}
    row = db.execute(_RUN, named).fetchone()
    return row[0] if row else None


def replayed_models(
    db: sqlite3.Connection, derived: Derived, execution: Execution
) -> RecordedModels | None:
    """Return the answers of models to an agent from the nearest repeat; None if it has none."""
    from kindlm.gateway.replay import RecordedModels  # only replays of agents need this import

    now = execution.repeat
    for then, *_, attempt in recorded_repeats(db, derived.run, execution):
        if calls := attempt.model_calls():
            warnings = [] if then == now else [as_repeat(then, now)]
            messages, masks_times = attempt.messages_to_agent(), derived.masks_times
            return RecordedModels(attempt.id, calls, masks_times, warnings, messages)
    return None


def recorded_sources(
    request: RunRequest, run: str, db: sqlite3.Connection
) -> tuple[TranscriptSource | None, AnswerSource | None]:
    """Return the sources of conversations and answers for the run `run`; None means a live run."""
    derived = request.derived
    if derived is None:
        earlier = cache(partial(earlier_runs, db, run))
        cached = partial(CachedAnswers, db, earlier, lambda of: options_of(of).wants_echo)
        return None, cached if request.options.cache else None
    if derived.mode == "replayed":
        calls, models = read_calls(db, [derived.run]), partial(replayed_models, db, derived)
        return None, partial(ReplayedAnswers, db, derived.run, calls, derived.asks_judges, models)
    rescored = partial(RescoredAnswers, db, runs_related_to(db, derived.run))
    return partial(held_conversation, db, derived.run), rescored


def embedder(
    derived: Derived | None, environ: Mapping[str, str], suite: Suite, target: str
) -> Result[Embedder]:
    """Find the embedder for a suite; only a local one if no target may be called."""
    if derived is None or derived.asks_judges:
        return find_embedder(suite, target, environ=environ)
    local = find_embedder(replace(suite, providers={}), target, environ=environ)
    if isinstance(local, Ok):
        return local
    message = "Embeddings are not recorded, and a replay calls no provider."
    hint = (
        "Use method: judge or field-diff, name a local model in KINDLM_EMBEDDING_MODEL, or let"
        " the provider be called: --judge live"
    )
    return Err(KindlmError(ErrorCode.PROVIDER_NOT_FOUND, message, hint))
