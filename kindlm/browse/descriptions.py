"""Datasette's metadata about a history: titles, descriptions, saved queries, facets, order.

Metadata of Datasette's user takes precedence. The plugin does not know the project of a file, so
`kindlm browse` passes on settings of the project.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]


# With `:run = '' OR run = :run` on executions, SQLite would read all of them.
_WANTED = "(SELECT id FROM runs WHERE :run = '' OR id = :run)"

QUERIES: dict[str, dict[str, str]] = {
    "failing_tool_calls": {
        "title": "Tool calls of failing executions",
        "sql": f"""
SELECT execution, test, target, repeat, status, position, tool, arguments, rule, response
  FROM tool_call_log
 WHERE status IN ('failed', 'errored') AND run IN {_WANTED}
 ORDER BY run, test, target, repeat, position
""",  # noqa: S608 (constants of this module)
    },
    "failures": {
        "title": "Failed assertions",
        "sql": f"""
SELECT execution, suite, test, target, repeat, kind, label, outcome, failure_code, message,
       expected, actual, reasoning, line
  FROM assertion_log
 WHERE outcome IN ('failed', 'inconclusive') AND NOT advisory AND run IN {_WANTED}
 ORDER BY run, suite, test, target, repeat, position
""",  # noqa: S608 (constants of this module)
    },
    "errors": {
        "title": "Errored executions, with hints",
        "sql": f"""
SELECT execution, suite, test, target, repeat, error_code, error, hint
  FROM execution_log
 WHERE error_code IS NOT NULL AND run IN {_WANTED}
 ORDER BY run, suite, test, target, repeat
""",  # noqa: S608 (constants of this module)
    },
    "pass_rates": {
        "title": "Pass rate of each test over time",
        "sql": """
SELECT s.name AS suite, p.test, p.target, r.started_at, r.id AS run,
       (SELECT count(*) FROM executions e
         WHERE e.suite = p.suite AND e.test = p.test AND e.target = p.target
           AND e.status = 'passed') AS passed,
       (SELECT count(*) FROM executions e
         WHERE e.suite = p.suite AND e.test = p.test AND e.target = p.target
           AND e.status IN ('passed', 'failed', 'errored')) AS tested
  FROM runs r
 CROSS JOIN suites s ON s.run = r.id
 CROSS JOIN planned_tests p ON p.suite = s.id
 WHERE p.selected AND (:test = '' OR p.test = :test)
 ORDER BY r.started_at DESC, s.ordinal, p.ordinal
""",
    },
    "spend_by_model": {
        "title": "Cost by model and purpose",
        "sql": f"""
SELECT model, counts_as AS purpose, count(*) AS calls, sum(c.input_tokens) AS input_tokens,
       sum(c.output_tokens) AS output_tokens, round(sum(c.cost_usd), 6) AS cost_usd,
       sum(c.is_unknown) AS calls_of_unknown_price
  FROM executions e
 CROSS JOIN counted_calls c ON c.execution = e.id
 WHERE e.run IN {_WANTED}
 GROUP BY model, counts_as
 ORDER BY cost_usd DESC
""",  # noqa: S608 (constants of this module)
    },
    "retries": {
        "title": "Failed model calls and their retries",
        "sql": f"""
SELECT execution, test, target, call, try, model, error_code, http_status, error, retry_in_ms
  FROM provider_call_log
 WHERE status = 'failed' AND run IN {_WANTED}
 ORDER BY run, test, target, call
""",  # noqa: S608 (constants of this module)
    },
}


DATABASE = "kindlm"
"""The name of the history in Datasette, whatever the name of its file."""

START_PAGE = f"/-/kindlm/{DATABASE}/runs"

INSTANCE = {"title": "kindlm", "description": "A complete record of every run."}
"""The title and description of `kindlm browse`."""

VIEW_DESCRIPTIONS = {
    "run_list": "All runs, newest first, with their suites and results.",
    "execution_log": "Executions (test × target × repeat) with their final output and error.",
    "tool_call_log": "Tool calls of the last attempt of each execution: arguments and results.",
    "assertion_log": "Assertions of the last attempt of each execution, with their evidence.",
    "provider_call_log": "All model calls with their responses, including retries and judge calls.",
    "counted_calls": "Calls whose tokens and costs count, each once. Model calls by an agent count"
    " only where its responses do not include them.",
    "tests": "Tests (case × target) of a run over their repeats.",
    "spend": "Calls, tokens and cost of each suite of a run, with judges listed separately.",
    "review_log": "Human reviews of executions: the latest verdict of each person, with its note.",
    "active_baselines": "The current baseline of each suite.",
    "event_log": "The event log. kindlm computes all other tables from it.",
    "shown_texts": "Content as the other views show it: `[erased]` for purged content,"
    " `[withheld]` for content that this history never received.",
    "content_texts": "Content that events refer to; erased or withheld content is empty.",
}
_TABLE_DESCRIPTIONS = {
    "runs": "Runs, one row for each `kindlm test`.",
    "run_labels": "The latest label of a run; empty if the label was removed.",
    "suites": "Suites of a run, with the hash of their configuration, and with `gates`: those in"
    " force after command-line overrides.",
    "planned_tests": "All tests of a suite, selected or not.",
    "executions": "Executions, with the result of their last attempt.",
    "retried_attempts": "Earlier attempts that did not pass and were retried.",
    "provider_calls": "Calls to models, agents, judges and embedders; content by reference. For"
    " agents, `provider` is the adapter and `model` is the id of the agent.",
    "tool_calls": "Tool calls, simulated or reported by an agent; content by reference.",
    "agent_spans": "OpenTelemetry spans that agents exported; content by reference.",
    "assertions": "Evaluated assertions; content by reference.",
    "gates": "The result of each gate when the run finished.",
    "baselines": "Baselines by suite and label, with the latest change.",
    "reviews": "Human reviews of executions, the latest of each person; notes by reference.",
    "contents": "Content that events refer to, each stored once.",
    "events": "Events as stored; the view event_log shows them in readable form.",
}
_COLUMNS = {
    "runs": {
        "mode": "live, rescored, replayed, settled, generation or imported",
        "planned": "number of executions in the plan",
        "ended": "finished, interrupted or aborted; empty: running, or killed",
        "passed": "the verdict that the user saw",
    },
    "executions": {
        "number": "position in the plan of the run, from 1",
        "attempt": "an execution that was resumed or retried has several attempts",
        "status": "passed, failed, errored or skipped; empty: not finished",
        "latency_ms": "milliseconds",
        "cost_usd": "US dollars for calls to the tested model; empty: unknown",
        "cost_source": "source of the cost: reported, computed or unknown",
        "score": "weighted mean of the checks of a scenario, 0 to 1; empty: undecided",
    },
    "provider_calls": {
        "purpose": "test, agent, judge, drift, simulate or generate",
        "try": "number of the try, from 1; each try is a row",
        "after": "the call that this request continues; 0: the first messages",
        "retry_in_ms": "delay before the next try, in milliseconds",
    },
    "tool_calls": {
        "position": "among the tool calls of the execution, from 0",
        "rule": "source of the result: a rule of the simulated tool, mcp, or agent",
    },
    "agent_spans": {
        "call": "the call to the agent that the spans belong to",
        "position": "in the tree: parents before children",
        "kind": "chat, tool, agent or other",
        "start_ms": "milliseconds after the start of the first span",
    },
    "assertions": {
        "outcome": "passed, failed, inconclusive or skipped",
        "score": "0 to 1; empty: undecided",
        "line": "line of the check in the suite's file",
        "advisory": "1: advisory, cannot fail the execution",
        "demands": "task or limit; empty: the check passed, or demands safety",
    },
    "tests": {
        "passed_later": "number of executions that passed only on a retry",
        "file": "file of the test, relative to the project folder",
        "line": "line in that file",
        "score_mean_min": "minimum mean of the weighted scores, 0 to 1",
        "score_std_dev_max": "maximum sample standard deviation of the weighted scores",
        "weighted_scores": "weighted scores of the repeats, if the test limits them",
        "confidence": "confidence level of the intervals",
    },
    "suites": {
        "unread": "files that kindlm could not load, relative to the project folder",
        "servers": "MCP servers of the suite with their tools; content by reference",
    },
    "planned_tests": {
        "file": "file of the test; empty: the suite's file",
    },
    "baselines": {
        "label": "empty: no label",
        "run": "empty: the baseline was removed",
        "by": "author, as user@host",
    },
    "reviews": {
        "passed": "1: the reviewer passed the execution",
        "by": "author, as user@host",
    },
    "event_log": {
        "seq": "order of arrival in this file",
        "stream": "run/<id>, or the journal of a process",
        "version": "position in the stream, from 1",
        "subject": "subject within the stream: execution.attempt",
        "hash": "hash of the event and of the previous hash in its stream",
    },
}
# Each order has an index: without one, SQLite would sort the whole table.
_NEWEST_FIRST = {
    "runs": "started_at",
    "run_list": "started_at",
    "review_log": "at",
    "event_log": "seq",
}
_FACETS = {
    "runs": ["passed", "ended", "git_branch"],
    "run_list": ["passed", "ended", "git_branch"],
    "executions": ["status", "test", "target"],
    "execution_log": ["status", "suite", "test", "target"],
    "tool_call_log": ["tool", "status", "test", "target"],
    "assertion_log": ["outcome", "kind", "failure_code", "test"],
    "provider_call_log": ["purpose", "model", "status", "error_code"],
    "provider_calls": ["purpose", "model", "status"],
    "tool_calls": ["tool", "rule"],
    "agent_spans": ["kind", "failed"],
    "assertions": ["outcome", "kind", "failure_code"],
    "tests": ["suite_name", "test", "target"],
    "review_log": ["passed", "status", "by", "test", "target"],
    "event_log": ["type", "stream"],
}
_HIDDEN = ("events", "streams", "event_types", "projections", "_sqlite_migrations")
"""Internal tables of the store."""


def metadata() -> dict[str, Any]:
    """Return descriptions of tables and columns, saved queries, order and facets of a database."""
    tables: dict[str, dict[str, Any]] = {
        name: {"description": text, "columns": dict(_COLUMNS.get(name, {}))}
        for name, text in (VIEW_DESCRIPTIONS | _TABLE_DESCRIPTIONS).items()
    }
    tables["executions"]["label_column"] = "test"
    for name, facets in _FACETS.items():
        tables[name]["facets"] = facets
    for name, column in _NEWEST_FIRST.items():
        tables[name]["sort_desc"] = column
    for name in _HIDDEN:
        tables.setdefault(name, {})["hidden"] = True
    return {"queries": {name: dict(query) for name, query in QUERIES.items()}, "tables": tables}


def instance_metadata(threshold: float | None) -> dict[str, Any]:
    """Return the metadata of `kindlm browse`, with the plugin's configuration."""
    configured = {"plugins": {"kindlm": {"regression_threshold": threshold}}}
    return INSTANCE | ({} if threshold is None else configured)


def regression_threshold(datasette: Datasette, database: str) -> float | None:
    """Return how far a mean score may fall according to the configuration, None if not set."""
    found = datasette.plugin_config("kindlm", database=database)
    value = found.get("regression_threshold") if isinstance(found, dict) else None
    return float(value) if isinstance(value, int | float) and 0 <= value <= 1 else None
