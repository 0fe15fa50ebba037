"""Reads the facts of a compliance report from the history, as plain values for a template.

The same history gives the same facts, whenever the report is made.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from itertools import zip_longest
from pathlib import Path
from typing import Any, Literal

from kindlm.checks.base import rules
from kindlm.document import section
from kindlm.events.run import PURGES, SEALED_HEADS
from kindlm.history.baselines import Baseline, BaselineChecks, find_baseline
from kindlm.history.diff.run_diff import DiffOptions, compare_runs
from kindlm.history.queries import among
from kindlm.history.read_models import changed_tables
from kindlm.history.rows import SuiteView, TestView
from kindlm.history.run_view import RunView
from kindlm.history.runs import journals_about
from kindlm.history.statistics import wilson_interval
from kindlm.projections import RUN_LABEL
from kindlm.reports import facts
from kindlm.reports.diff.phrases import headline_of
from kindlm.reports.figures import comparison
from kindlm.spelling import fields_of
from kindlm.strict_json import read_json
from kindlm.wording import count
from kindlm_store import REDACTED
from kindlm_store.verification import verify_file

_METADATA = (
    "systemName",
    "systemVersion",
    "intendedPurpose",
    "riskLevel",
    "operator",
    "dataGovernanceNotes",
)

_PLANNED = """
SELECT test, target, sum(repeat) AS repeat FROM planned_tests
 WHERE suite IN $ids AND selected
 GROUP BY test, target
"""


_MODELS = """
SELECT DISTINCT c.purpose, c.provider, c.model, c.reported_model
  FROM executions e
  JOIN provider_calls c ON c.execution IN (e.id, e.source)
   AND (c.execution = e.id
        OR (c.attempt = e.source_attempt AND c.purpose IN ('test', 'agent')))
 WHERE e.suite IN $ids
 ORDER BY 1 DESC, 2, 3, 4
"""


def read_facts(
    view: RunView, suite: SuiteView, regression_threshold: float | None = None
) -> tuple[dict[str, Any], tuple[str, str] | None]:
    """Return all facts that a template can use about a suite of a run, and its own template.

    The template is the file and the text that the suite was recorded with, None for kindlm's own.
    `regression_threshold` is how far a mean score may fall below that of the baseline, None for the
    default.
    """
    db, info = view.db, view.info
    config, gone = _config(db, suite)
    compliance = section(config, "config", "compliance")
    stated = section(compliance, "metadata")
    metadata = {
        key: text.strip() if isinstance(text, str) else text for key, text in stated.items()
    }
    unfinished = facts.is_unfinished(view, suite)
    # An incomplete run has planned repeats without executions.
    planned = {
        (row["test"], row["target"]): row["repeat"]
        for row in (db.execute(*among(_PLANNED, suite.parts)) if unfinished else ())
    }
    tests = [_test(test, planned) for test in view.tests(suite.id)]
    titles = {kind: rule.title for kind, rule in rules().items()} | _TITLES
    # The title of a check is what a guardrail forbids.
    checks = [
        {**dict(row), "title": titles.get(row["kind"])}
        for row in db.execute(*among(_CHECKS, suite.parts))
    ]
    history, older_runs = read_history(view, suite)
    reviews = _reviews(view, suite)
    verdict = facts.suite_verdict_of(view, suite)
    baseline = find_baseline(db, suite.project or info.project, suite.name)
    file = Path(db.execute("PRAGMA database_list").fetchone()[2])
    baseline_runs = baseline.runs if baseline else ()
    audit = _audit(view, suite, file, baseline_runs)
    runs_read = [*(stream["run"] for stream in audit), *baseline_runs]
    source = config.get("reportTemplate")
    is_custom = compliance.get("framework") == "custom" and isinstance(source, str) and source
    template = (str(compliance.get("template")), str(source)) if is_custom else None
    return {
        "system": {name: metadata.get(name) or None for name in _METADATA},
        "framework": compliance.get("framework", "eu-ai-act"),
        "run": {
            "id": view.id,
            **fields_of(info, "label mode ci"),
            "started": info.started_at,
            "finished": info.finished_at,
            "ended": info.ended or "not finished",
            "commit": info.git_commit,
            "branch": info.git_branch,
            "changed": bool(info.git_dirty),
            "kindlm": info.kindlm_version,
            "source": info.source_run,
            "suites": len(view.suites),
            "verdict": facts.verdict_of(view).word,
        },
        "suite": {
            **fields_of(suite, "name path config_hash error"),
            "status": suite.status.value,
            "unfinished": unfinished,
            "erased": gone == "erased",
            "withheld": gone == "withheld",
            "repeats": sorted(set(planned.values()) or {test["repeats"] for test in tests}),
        },
        "verdict": f"{verdict.word}: {', '.join(verdict.reasons)}",
        "passed": verdict.good,
        "notes": list(_notes(view, suite)),
        "models": [dict(row) for row in db.execute(*among(_MODELS, suite.parts))],
        "gates": _gates(suite, {check["kind"] for check in checks}),
        "tests": tests,
        "totals": [{"name": name, "value": value} for name, value in facts.totals_of(view, suite)],
        "checks": checks,
        "guardrails": [check for check in checks if check["title"] is not None],
        "baseline": baseline and _compared(view, suite, baseline, regression_threshold),
        "history": history,
        "older_runs": older_runs,
        "reviews": reviews[:_MOST_REVIEWS],
        "more_reviews": len(reviews[_MOST_REVIEWS:]),
        "reviewed": view.reviewed(suite)._asdict(),
        "audit": audit,
        "changed_tables": changed_tables(file, dict.fromkeys(runs_read)),
    }, template


_CONFIG = """
SELECT c.body, c.salt FROM suites s JOIN contents c ON c.ref = s.config_ref WHERE s.id = ?
"""


def _config(
    db: sqlite3.Connection, suite: SuiteView
) -> tuple[Mapping[str, Any], Literal["erased", "withheld"] | None]:
    """Return the recorded configuration, {} without one, and why its content is missing."""
    row = db.execute(_CONFIG, (suite.id,)).fetchone()
    if row is not None and row[0] in (None, REDACTED):
        return {}, "erased" if row[1] is None else "withheld"
    # The texts of a run that was pushed or imported are those of its sender.
    config = read_json(row[0]) if row else None
    return (config if isinstance(config, dict) else {}), None


_DERIVED = {
    "rescored": "The conversations are those of the source run. This run checked them again, by the"
    " configuration below; no tested model was called.",
    "replayed": "The answers of models are those of the source run. No model was called.",
    "settled": "These repeats were added to the source run.",
    "imported": "The results were imported from another tool, and were not recorded by kindlm.",
}
"""Notes on runs that did not call the tested models themselves, by mode."""


_NOT_SELECTED = """
SELECT count(*)
  FROM (SELECT 1 FROM planned_tests WHERE suite IN $ids GROUP BY test, target
        HAVING NOT max(selected))
"""


def _notes(view: RunView, suite: SuiteView) -> Iterator[str]:
    if view.info.shard is not None:
        yield "This report covers only what this shard ran."
    elif others := view.db.execute(*among(_NOT_SELECTED, suite.parts)).fetchone()[0]:
        lacks = view.group is not None and not view.group.complete
        why = "Not selected for the shards that are here" if lacks else "Not selected for this run"
        yield f"{why}, and not shown here: {count(others, 'test')} of the suite."
    if view.group is not None:
        yield f"Group {view.id}, shown as one run, of the runs {', '.join(view.runs)}."
    yield from (f"{note}." for note in facts.shard_notes(view))
    if (how := _DERIVED.get(view.info.mode)) is not None:
        yield how
    if (then := facts.then_text(view)) is not None:
        yield then


def _test(test: TestView, planned: Mapping[tuple[str, str], int]) -> dict[str, Any]:
    counts = test.counts
    ended = counts.total - counts.pending
    low, high = wilson_interval(counts.passed, counts.tested) or (None, None)
    return {
        **fields_of(test, "name target flaky broken_limits"),
        **fields_of(counts, "passed tested"),
        "status": test.status.value,
        "repeats": counts.total,
        "missing": max(planned.get((test.name, test.target), 0) - ended, 0),
        "rate": counts.pass_rate,
        "low": low,
        "high": high,
        "needs": test.pass_rate_min,
    }


# Advisory and skipped checks do not affect the verdict.
_CHECKS = """
SELECT a.kind, count(*) AS checks, sum(a.outcome = 'failed') AS failed,
       sum(a.outcome = 'inconclusive') AS inconclusive
  FROM executions e
  JOIN assertions a ON a.execution = e.id AND a.attempt = e.attempt
 WHERE e.suite IN $ids AND NOT a.advisory AND a.outcome <> 'skipped'
 GROUP BY a.kind
 ORDER BY a.kind
"""

_TITLES = {
    "schema": "JSON that breaks its schema in the answer",
    "output_schema": "JSON that breaks its schema in the answer",
    "tool_strict": "A tool call that no answer was meant for, or that breaks the tool's schema",
}
"""Titles of guardrails without a SARIF rule, by kind."""

_COUNTED = {
    "schemaFailuresMax": ("schema",),
    "piiFailuresMax": ("pii",),
    "keywordFailuresMax": ("keywords_deny", "keywords_allow"),
}
"""The kinds of checks whose failures a gate counts."""


def _gates(suite: SuiteView, made: set[str]) -> list[dict[str, Any]]:
    """Return the gates of a suite, where checks of the kinds `made` ran.

    `measured` is false for a gate without any value or check to judge.
    """
    gates = []
    for gate in suite.gates:
        counted = _COUNTED.get(gate.name)
        measured = gate.actual is not None if counted is None else not made.isdisjoint(counted)
        gates.append(
            {
                **fields_of(gate, "name passed actual threshold message"),
                "measured": measured,
                "shown": comparison(gate),
            }
        )
    return gates


_MOST_RUNS = 10

# `listed` is materialised so that only calls of these runs are read. It has one run more, which the
# oldest run shown is compared with. Other shards may have begun after the first one.
_LISTED_RUNS = f"""
WITH listed AS MATERIALIZED (
  SELECT r.id, s.id AS suite, {RUN_LABEL} AS label, r.shard, r.group_id, r.started_at,
         r.git_commit, r.git_dirty, s.config_hash, count(*) OVER () AS finished
    FROM suites s
    JOIN runs r ON r.id = s.run AND r.mode = 'live' AND r.ended = 'finished'
    LEFT JOIN run_labels l ON l.run = r.id
   WHERE s.project = :project AND s.name = :suite
     AND r.started_at <= (SELECT max(started_at) FROM runs WHERE id IN $ids)
   ORDER BY r.started_at DESC, r.id
   LIMIT {_MOST_RUNS + 1}
)
SELECT listed.*,
       (SELECT group_concat(name, ', ') FROM (
          SELECT DISTINCT coalesce(c.reported_model, c.model) AS name
            FROM executions e JOIN provider_calls c ON c.execution = e.source
           WHERE e.suite = listed.suite AND c.purpose = 'test' AND c.status = 'responded'
           ORDER BY 1)) AS models
  FROM listed
 ORDER BY started_at DESC, id
"""  # noqa: S608 (constants of this module)

_PARTS = {"config_hash": "configuration", "models": "models", "git_commit": "code"}


def _compared(
    view: RunView, suite: SuiteView, baseline: Baseline, regression_threshold: float | None
) -> dict[str, Any]:
    """Return how the suite compares with its baseline, without other suites of the runs."""
    about = {
        "run": baseline.name,
        "label": baseline.label,
        "by": baseline.set_by,
        "at": baseline.set_at,
        "reasons": [],
    }
    if baseline.run in view.runs:
        return {**about, "verdict": "this run is the baseline"}
    identity = suite.project or view.info.project, suite.name
    problem = BaselineChecks(view.db).corruption(baseline.runs, *identity)
    if problem is not None:
        return {**about, "verdict": "NOT COMPARED", "reasons": [problem.message]}
    options = DiffOptions(regression_threshold=regression_threshold, suites=frozenset([identity]))
    before = baseline.side(view.db)
    headline = headline_of(compare_runs(view.db, before, view.group or view.id, options))
    return {**about, "verdict": headline.word, "reasons": list(headline.reasons)}


def read_history(view: RunView, suite: SuiteView) -> tuple[list[dict[str, Any]], int]:
    """Return the last runs of the suite up to this one, newest first, and the number of older ones.

    Each has its verdict on this suite and what changed since the run before it.
    """
    project = suite.project or view.info.project
    wanted = among(_LISTED_RUNS, view.runs, project=project, suite=suite.name)
    rows = [dict(row) for row in view.db.execute(*wanted)]
    finished = [row.pop("finished") for row in rows]
    listed = []
    for row, older in zip_longest(rows[:_MOST_RUNS], rows[1 : _MOST_RUNS + 1]):
        run = RunView(view.db, row["id"])
        then = next(each for each in run.suites if row["suite"] in each.parts)
        verdict = facts.suite_verdict_of(run, then)
        result = {"passed": verdict.good, "result": verdict.word}
        changed = []
        if older is not None:
            changed = [name for key, name in _PARTS.items() if older[key] != row[key]]
            is_dirty = older["git_dirty"] or row["git_dirty"]
            if older["git_commit"] == row["git_commit"] and is_dirty:
                changed.append("perhaps code that was not committed")
        listed.append({**row, **result, "first": older is None, "changed": changed})
    return listed, max(finished, default=0) - len(listed)


_MOST_REVIEWS = 200


def _reviews(view: RunView, suite: SuiteView) -> list[dict[str, Any]]:
    """Return the reviews, oldest first.

    Notes are masked: personal data that checks found in the conversation is redacted.
    """
    if not view.reviewed(suite).executions:
        return []
    found = [
        {
            "execution": execution.id,
            **fields_of(execution, "test target repeat status"),
            **fields_of(review, "passed note by at"),
        }
        for test in view.tests(suite.id)
        for execution in view.executions(test)
        for review in view.reviews(execution)
    ]
    return sorted(found, key=lambda review: review["at"])


# The runs that recorded the conversations of this run.
_SOURCES = """
SELECT DISTINCT source.run
  FROM executions e
  JOIN executions source ON source.id = e.source
 WHERE e.suite IN $ids
 ORDER BY 1
"""


def _audit(
    view: RunView, suite: SuiteView, file: Path, baseline: Sequence[str]
) -> list[dict[str, Any]]:
    """Return for each run the number of its events, its head, and whether it is unchanged.

    Source runs come last. The first run includes the problems of journals, also of those about
    source runs and the runs of the baseline.
    """
    db = view.db
    sources = [row[0] for row in db.execute(*among(_SOURCES, suite.parts))]
    about = (*view.runs, *sources, *baseline)
    audit: list[dict[str, Any]] = []
    for run in dict.fromkeys((*view.runs, *sources)):
        stream = f"run/{run}"
        row = db.execute(
            "SELECT version, 'sha256:' || lower(substr(hex(head), 3)) AS head, sealed"
            "  FROM streams WHERE name = ?",
            (stream,),
        ).fetchone() or {"version": 0, "head": None, "sealed": False}  # removed: a problem below
        found = verify_file(file, stream, claims=SEALED_HEADS, erasures=PURGES)
        problems = [problem.what for problem in found.problems[:5]]
        for journal in () if audit else journals_about(db, about):
            wrong = verify_file(file, journal, erasures=PURGES).problems
            problems += [f"{journal}: {problem.what}" for problem in wrong[:5]]
        audit.append(
            {
                "run": run,
                "events": row["version"],
                "head": row["head"],
                "sealed": bool(row["sealed"]),
                **fields_of(found, "erased withheld"),
                "verified": not problems,
                "problems": problems,
                "source": run not in view.runs,
            }
        )
    return audit
