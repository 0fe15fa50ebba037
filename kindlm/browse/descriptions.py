"""What Datasette says about the history: titles, descriptions, saved queries, facets, order."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from kindlm.browse.queries import QUERIES

__all__ = [
    "DATABASE",
    "INSTANCE",
    "START_PAGE",
    "VIEW_DESCRIPTIONS",
    "described",
    "merged",
    "settings",
]

DATABASE = "kindlm"
"""Name of the history in Datasette, whatever its file is called."""

START_PAGE = f"/-/kindlm/{DATABASE}/runs"

INSTANCE = {"title": "kindlm", "description": "Everything that the tested agents did."}
"""What `kindlm browse` says of itself as a whole."""

VIEW_DESCRIPTIONS = {
    "run_list": "All runs, newest first: what was tested, and how it came out.",
    "execution_log": "Executions (test × target × repeat) with their final output and error.",
    "tool_call_log": "Tool calls of the last attempt of each execution: arguments and answers.",
    "assertion_log": "Assertions of the last attempt of each execution, with what was expected.",
    "provider_call_log": "All calls of models, retries and judges included, as they came back.",
    "tests": "Tests (case × target) of a run over their repeats.",
    "spend": "Calls, tokens and cost of each suite of a run, judges apart.",
    "review_log": "What people said of executions: of each person the last word, with its note.",
    "active_baselines": "The run that each suite is compared with: the one that was set last.",
    "event_log": "The event log itself: the only truth, everything else is computed from it.",
    "shown_texts": "Texts as the other views show them: `[erased]` stands for what was purged,"
    " `[withheld]` for what never came to this history.",
    "content_texts": "Texts that events refer to; one that was erased or withheld is empty.",
}
_TABLE_DESCRIPTIONS = {
    "runs": "Runs, one row for each `kindlm test`.",
    "run_labels": "The name that a run was given last; empty: its name was taken away.",
    "seals": "The last hash of each completed run, as it was noted when the run was sealed.",
    "suites": "Suites of a run, with the hash of their configuration.",
    "suite_gates": "Gates in force in a suite, after command-line overrides.",
    "planned_tests": "All tests of a suite, selected or not.",
    "executions": "Executions, as their last attempt left them.",
    "retried_attempts": "Attempts that did not pass, after which an execution was run again.",
    "provider_calls": "Calls of models; texts by reference.",
    "tool_calls": "Calls of simulated tools; texts by reference.",
    "assertions": "Assertions that were evaluated; texts by reference.",
    "gates": "What each gate said when the run finished.",
    "baselines": "Baselines by suite and label, as they were set or removed last.",
    "reviews": "What people said of executions, of each person the last word; notes by reference.",
    "contents": "Texts that events refer to, each stored once.",
    "events": "Events as stored; the view event_log shows them readably.",
}
_COLUMNS = {
    "runs": {
        "mode": "live, rescored, replayed, settled, generation or imported",
        "planned": "number of executions in the plan",
        "ended": "finished, interrupted or aborted; empty: running, or killed",
        "passed": "the verdict as told to the user then",
    },
    "executions": {
        "number": "position in the plan of the run, from 1",
        "attempt": "an execution that was resumed or retried has several attempts",
        "status": "passed, failed, errored or skipped; empty: not finished",
        "latency_ms": "milliseconds",
        "cost_usd": "US dollars of the tested model's calls; empty: unknown",
        "cost_source": "where the cost comes from: reported, computed or unknown",
        "score": "of a scenario, the weighted mean of its checks, 0 to 1; empty: nothing decided",
    },
    "provider_calls": {
        "purpose": "test, judge, drift, simulate or generate",
        "try": "which try of the same call, from 1",
        "after": "the call whose answer this request continues; 0: the first messages",
        "retry_in_ms": "how long was waited before the next try",
    },
    "tool_calls": {
        "position": "among the tool calls of the execution, from 0",
        "rule": "which rule of the simulated tool answered",
    },
    "assertions": {
        "outcome": "passed, failed, inconclusive or skipped",
        "score": "0 to 1; empty: not decided",
        "line": "line of the suite's file that asks for it",
        "advisory": "1: it decides nothing",
    },
    "tests": {
        "passed_later": "how many of those that passed did so only when they were run again",
        "file": "where it is written, from the folder of the project",
        "line": "line of that file",
        "score_mean_min": "least mean of its weighted scores, 0 to 1",
        "score_std_dev_max": "largest standard deviation of its weighted scores, of a sample",
        "weighted_scores": "those of its repeats, where they have such a limit",
        "confidence": "with which the intervals that are shown hold",
    },
    "suites": {
        "unread": "its files that could not be loaded, from the folder of the project",
    },
    "planned_tests": {
        "file": "where it is written; empty: in the file of its suite",
    },
    "baselines": {
        "label": "empty: set without one",
        "run": "empty: the baseline was removed",
        "by": "who said so, as user@host",
    },
    "reviews": {
        "passed": "whether the person says that the execution passes",
        "by": "who said so, as user@host",
    },
    "event_log": {
        "seq": "order of arrival in this file",
        "stream": "what the event is about: run/<id>, or the journal of a process",
        "version": "position in the stream, from 1",
        "subject": "what inside the stream it is about: execution.attempt",
        "hash": "covers the event and the hash of the event before it in its stream",
    },
}
# An order is one of an index: any other would be found by sorting all that was ever recorded.
_TABLE_SETTINGS: dict[str, dict[str, Any]] = {
    "runs": {"sort_desc": "started_at", "facets": ["passed", "ended", "git_branch"]},
    "run_list": {"sort_desc": "started_at", "facets": ["passed", "ended", "git_branch"]},
    "executions": {
        "facets": ["status", "test", "target"],
        "label_column": "test",
    },
    "execution_log": {"facets": ["status", "suite", "test", "target"]},
    "tool_call_log": {"facets": ["tool", "status", "test", "target"]},
    "assertion_log": {"facets": ["outcome", "kind", "failure_code", "test"]},
    "provider_call_log": {"facets": ["purpose", "model", "status", "error_code"]},
    "provider_calls": {"facets": ["purpose", "model", "status"]},
    "tool_calls": {"facets": ["tool", "rule"]},
    "assertions": {"facets": ["outcome", "kind", "failure_code"]},
    "tests": {"facets": ["suite_name", "test", "target"]},
    "review_log": {"sort_desc": "at", "facets": ["passed", "status", "by", "test", "target"]},
    "event_log": {"sort_desc": "seq", "facets": ["type", "stream"]},
    # How the store works inside: there, but not in the way.
    "events": {"hidden": True},
    "streams": {"hidden": True},
    "event_types": {"hidden": True},
    "projections": {"hidden": True},
    "_sqlite_migrations": {"hidden": True},
}


def described() -> dict[str, Any]:
    """Return descriptions of tables and columns, as Datasette's metadata of a database."""
    tables = {
        name: {"description": text, "columns": dict(_COLUMNS.get(name, {}))}
        for name, text in (VIEW_DESCRIPTIONS | _TABLE_DESCRIPTIONS).items()
    }
    return {"tables": tables}


def settings() -> dict[str, Any]:
    """Return saved queries, order and facets, as Datasette's configuration of a database."""
    return {
        "queries": {name: dict(query) for name, query in QUERIES.items()},
        "tables": {name: dict(values) for name, values in _TABLE_SETTINGS.items()},
    }


def merged(left: Mapping[str, Any], right: Mapping[str, Any]) -> dict[str, Any]:
    """Return two documents as one; what both say is as the right one has it."""
    both = dict(left)
    for key, value in right.items():
        deeper = isinstance(value, dict) and isinstance(both.get(key), dict)
        both[key] = merged(both[key], value) if deeper else value
    return both
