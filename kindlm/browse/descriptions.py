"""What Datasette says about a history: titles, descriptions, saved queries, facets, order.

Before Datasette 1.0 all of it is metadata, which a hook returns. Since 1.0 descriptions are in a
database of Datasette's own, and the rest is configuration. What the user of the Datasette wrote
stays. The plugin reads no project's configuration, since it does not know which project a file
belongs to: `kindlm browse` passes on what the project says.
"""

from __future__ import annotations

from collections.abc import Mapping
from inspect import signature
from typing import TYPE_CHECKING, Any

from kindlm.browse.access import histories

if TYPE_CHECKING:
    from datasette.app import Datasette  # type: ignore[import-untyped]


# With `:run = '' OR run = :run` instead, SQLite reads all executions to find those of one run.
_WANTED = "(SELECT id FROM runs WHERE :run = '' OR id = :run)"

QUERIES: dict[str, dict[str, str]] = {
    "failing_tool_calls": {
        "title": "Which tools did the failing executions call, with what arguments?",
        "sql": f"""
SELECT execution, test, target, repeat, status, position, tool, arguments, rule, response
  FROM tool_call_log
 WHERE status IN ('failed', 'errored') AND run IN {_WANTED}
 ORDER BY run, test, target, repeat, position
""",  # noqa: S608 (constants of this module)
    },
    "failures": {
        "title": "What failed, and why?",
        "sql": f"""
SELECT execution, suite, test, target, repeat, kind, label, outcome, failure_code, message,
       expected, actual, reasoning, line
  FROM assertion_log
 WHERE outcome IN ('failed', 'inconclusive') AND NOT advisory AND run IN {_WANTED}
 ORDER BY run, suite, test, target, repeat, position
""",  # noqa: S608 (constants of this module)
    },
    "errors": {
        "title": "Which executions could not be run, and what to do about it?",
        "sql": f"""
SELECT execution, suite, test, target, repeat, error_code, error, hint
  FROM execution_log
 WHERE error_code IS NOT NULL AND run IN {_WANTED}
 ORDER BY run, suite, test, target, repeat
""",  # noqa: S608 (constants of this module)
    },
    "pass_rates": {
        "title": "How did each test do over time?",
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
        "title": "What was spent, on which model, for what?",
        "sql": f"""
SELECT model, counts_as AS purpose, count(*) AS calls, sum(c.input_tokens) AS input_tokens,
       sum(c.output_tokens) AS output_tokens, round(sum(c.cost_usd), 6) AS cost_usd,
       sum(c.status = 'responded' AND c.cost_usd IS NULL) AS calls_of_unknown_price
  FROM executions e
 CROSS JOIN counted_calls c ON c.execution = e.id
 WHERE e.run IN {_WANTED}
 GROUP BY model, counts_as
 ORDER BY cost_usd DESC
""",  # noqa: S608 (constants of this module)
    },
    "retries": {
        "title": "Which calls of models failed, and were they tried again?",
        "sql": f"""
SELECT execution, test, target, call, try, model, error_code, http_status, error, retry_in_ms
  FROM provider_call_log
 WHERE status = 'failed' AND run IN {_WANTED}
 ORDER BY run, test, target, call
""",  # noqa: S608 (constants of this module)
    },
}


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
    "counted_calls": "Calls whose tokens and costs count, each once: of those that an agent made,"
    " only those that are in no answer of it.",
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
    "provider_calls": "Calls of models, agents, judges and embedders; texts by reference. Of an"
    " agent, `provider` is the adapter and `model` its id.",
    "tool_calls": "Calls of tools, simulated or reported by an agent; texts by reference.",
    "agent_spans": "OpenTelemetry spans that agents exported; texts by reference.",
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
        "purpose": "test, agent, judge, drift, simulate or generate",
        "try": "which try of the same request, from 1; each try is a row",
        "after": "the call whose answer this request continues; 0: the first messages",
        "retry_in_ms": "how long was waited before the next try",
    },
    "tool_calls": {
        "position": "among the tool calls of the execution, from 0",
        "rule": "which rule of the simulated tool answered",
    },
    "agent_spans": {
        "call": "the call of the agent that they are about",
        "position": "in the tree: each before those below it",
        "kind": "chat, tool, agent or other",
        "start_ms": "after the start of the first span",
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
        "servers": "its MCP servers, with the tools that they listed; texts by reference",
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
    "agent_spans": {"facets": ["kind", "failed"]},
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


_PLUGIN = "kindlm"
_THRESHOLD = "regression_threshold"


def configured(threshold: float | None) -> dict[str, Any]:
    """Return arguments of a Datasette: what it says of itself, and the plugin's configuration."""
    from datasette.app import Datasette

    own = {} if threshold is None else {"plugins": {_PLUGIN: {_THRESHOLD: threshold}}}
    if "config" in signature(Datasette).parameters:
        return {"metadata": INSTANCE, "config": own}
    return {"metadata": INSTANCE | own}


def regression_threshold(datasette: Datasette, database: str) -> float | None:
    """Return how far a mean score may fall before that is a regression; None if it is not set."""
    # Since 1.0 what is said for all databases counts only for those of which nothing is said.
    found = datasette.plugin_config(_PLUGIN, database=database) or datasette.plugin_config(_PLUGIN)
    value = found.get(_THRESHOLD) if isinstance(found, dict) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    return float(value) if 0 <= value <= 1 else None


def metadata_of(datasette: Datasette) -> dict[str, Any]:
    """Return the metadata of all histories, for Datasette before 1.0."""
    return {"databases": {name: merged(described(), settings()) for name in histories(datasette)}}


async def describe(datasette: Datasette) -> None:
    """Tell a Datasette since 1.0 of all histories, as it starts."""
    if not hasattr(datasette, "set_resource_metadata"):
        return
    for name in histories(datasette):
        _configure(datasette, name)
        for table, found in described()["tables"].items():
            await _describe(datasette, name, table, found)
        for query, saved in QUERIES.items():
            if await datasette.get_query(name, query) is None:
                await datasette.add_query(name, query, saved["sql"], title=saved["title"])


def _configure(datasette: Datasette, database: str) -> None:
    config = datasette.config if datasette.config is not None else {}
    own = config.setdefault("databases", {}).setdefault(database, {})
    # Saved queries are added by themselves: those of the configuration were read already.
    own["tables"] = merged(settings()["tables"], own.get("tables") or {})
    datasette.config = config


async def _describe(
    datasette: Datasette, database: str, table: str, found: Mapping[str, Any]
) -> None:
    written = await datasette.get_resource_metadata(database, table)
    if "description" not in written:
        await datasette.set_resource_metadata(database, table, "description", found["description"])
    for column, text in found["columns"].items():
        if "description" not in await datasette.get_column_metadata(database, table, column):
            await datasette.set_column_metadata(database, table, column, "description", text)
