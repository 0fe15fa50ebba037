"""Questions that people ask of a history, as saved queries. An empty `run` means all runs."""

from __future__ import annotations

__all__ = ["QUERIES"]

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
SELECT model, purpose, count(*) AS calls, sum(c.input_tokens) AS input_tokens,
       sum(c.output_tokens) AS output_tokens, round(sum(c.cost_usd), 6) AS cost_usd,
       sum(c.status = 'responded' AND c.cost_usd IS NULL) AS calls_of_unknown_price
  FROM executions e
 CROSS JOIN provider_calls c ON c.execution = e.id
 WHERE e.run IN {_WANTED}
 GROUP BY model, purpose
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
