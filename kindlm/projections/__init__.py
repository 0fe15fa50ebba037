"""The read models: tables that SQL folds from the event log, and views over them.

Tables have references to texts, and views join the texts. A key of JSON with dots is quoted:
`$."gen_ai.usage.input_tokens"`.

People read the views, in Datasette or by SQL. An erased text reads `[erased]`, a withheld one
`[withheld]`. The views show the last attempt at an execution; `spend` counts all attempts.
"""

from __future__ import annotations

from kindlm.projections.execution_tables import (
    AGENT_SPANS,
    ASSERTIONS,
    EXECUTIONS,
    PROVIDER_CALLS,
    TOOL_CALLS,
)
from kindlm.projections.run_tables import BASELINES, GATES, REVIEWS, RUNS, SUITES
from kindlm_store import Projection

RUN_LABEL = "CASE WHEN l.run IS NULL THEN r.label ELSE l.label END"
"""SQL: the label of the run `r`, with `run_labels` joined to it as `l`."""

ERASED = "[erased]"
"""Shown for a text that was purged."""

WITHHELD = "[withheld]"
"""Shown for a text that never arrived in this history."""

GONE = frozenset({ERASED, WITHHELD})

# A file stores the SQL of views, comments included: raise `version` with any change in it.
VIEWS = Projection(
    "views",
    version=17,
    sql=f"""
VIEW shown_texts:
SELECT ref, coalesce(body, iif(salt IS NULL, '{ERASED}', '{WITHHELD}')) AS body FROM contents

VIEW execution_log:
SELECT e.id AS execution, e.run, s.name AS suite, e.test, e.target, e.repeat, e.attempt,
       e.status, o.body AS output, e.error_code, x.body AS error, e.hint,
       e.answers, e.latency_ms, e.input_tokens, e.output_tokens, e.cost_usd, e.cost_source,
       e.cost_then_usd, e.source, e.started_at, e.finished_at
  FROM executions e
  JOIN suites s ON s.id = e.suite
  LEFT JOIN shown_texts o ON o.ref = e.output_ref
  LEFT JOIN shown_texts x ON x.ref = e.error_ref

VIEW tool_call_log:
SELECT t.execution, e.run, s.name AS suite, e.test, e.target, e.repeat, e.status,
       t.position, t.tool, a.body AS arguments, t.rule, r.body AS response
  FROM tool_calls t
  JOIN executions e ON e.id = t.execution AND e.attempt = t.attempt
  JOIN suites s ON s.id = e.suite
  LEFT JOIN shown_texts a ON a.ref = t.arguments_ref
  LEFT JOIN shown_texts r ON r.ref = t.response_ref

VIEW assertion_log:
SELECT a.execution, e.run, s.name AS suite, e.test, e.target, e.repeat, a.position,
       a.kind, a.label, a.outcome, a.score, a.threshold, a.failure_code,
       m.body AS message, x.body AS expected, y.body AS actual, r.body AS reasoning, a.line,
       a.advisory
  FROM assertions a
  JOIN executions e ON e.id = a.execution AND e.attempt = a.attempt
  JOIN suites s ON s.id = e.suite
  LEFT JOIN shown_texts m ON m.ref = a.message_ref
  LEFT JOIN shown_texts x ON x.ref = a.expected_ref
  LEFT JOIN shown_texts y ON y.ref = a.actual_ref
  LEFT JOIN shown_texts r ON r.ref = a.reasoning_ref

VIEW provider_call_log:
SELECT c.execution, e.run, e.test, e.target, e.repeat, c.attempt, c.call, c.purpose, c.provider,
       c.model, c.try, c.status, t.body AS text, c.finish_reason, c.input_tokens, c.output_tokens,
       c.latency_ms, c.cost_usd, c.cost_source, c.error_code, c.http_status, x.body AS error,
       c.retry_in_ms, r.body AS raw, c.requested_at
  FROM provider_calls c
  JOIN executions e ON e.id = c.execution
  LEFT JOIN shown_texts t ON t.ref = c.text_ref
  LEFT JOIN shown_texts x ON x.ref = c.error_ref
  LEFT JOIN shown_texts r ON r.ref = c.raw_ref

-- Calls whose tokens and costs count. The answer of an agent includes the model calls that
-- the agent made, so those count only where the agent failed. A failed call has a
-- `cost_source` if it was charged.
VIEW counted_calls:
SELECT c.*, iif(c.purpose = 'agent', 'test', c.purpose) AS counts_as,
       iif(c.status = 'failed', coalesce(c.cost_source = 'unknown', 0),
           c.status = 'responded' AND c.cost_usd IS NULL) AS is_unknown
  FROM provider_calls c
 WHERE c.purpose <> 'agent' OR coalesce((
   SELECT a.status FROM provider_calls a
    WHERE a.execution = c.execution AND a.attempt = c.attempt AND a.call < c.call
      AND a.purpose = 'test'
    ORDER BY a.call DESC LIMIT 1), 'failed') <> 'responded'

VIEW tests:
SELECT s.run, p.suite, s.name AS suite_name, p.test, p.target, p.ordinal,
       coalesce(p.file, s.path) AS file, p.line,
       p.pass_rate AS pass_rate_min, s.tags AS suite_tags, p.tags,
       count(e.id) AS executions,
       coalesce(sum(e.status = 'passed'), 0) AS passed,
       coalesce(sum(e.status = 'failed'), 0) AS failed,
       coalesce(sum(e.status = 'errored'), 0) AS errored,
       coalesce(sum(e.status = 'skipped'), 0) AS skipped,
       sum(e.id IS NOT NULL AND e.status IS NULL) AS unfinished,
       coalesce(sum(e.status = 'passed' AND EXISTS (
         SELECT 1 FROM retried_attempts r WHERE r.execution = e.id
       )), 0) AS passed_later,
       1.0 * sum(e.status = 'passed')
           / nullif(sum(e.status IN ('passed', 'failed', 'errored')), 0) AS pass_rate,
       avg(CASE WHEN e.answers > 0 THEN e.latency_ms END) AS latency_avg_ms,
       -- a sum with an unknown part is unknown
       CASE WHEN count(e.cost_usd) = sum(e.answers > 0) THEN sum(e.cost_usd) END AS cost_usd,
       p.score_mean_min, p.score_std_dev_max, p.confidence,
       -- only where they have to keep to limits: for most tests nobody asks
       CASE WHEN coalesce(p.score_mean_min, p.score_std_dev_max) IS NOT NULL THEN (
         SELECT json_group_array(a.score)
           FROM executions w
           JOIN assertions a ON a.execution = w.id AND a.attempt = w.attempt
          WHERE w.suite = p.suite AND w.test = p.test AND w.target = p.target
            AND a.kind = 'weighted_score' AND a.score IS NOT NULL
       ) END AS weighted_scores
  FROM planned_tests p
  JOIN suites s ON s.id = p.suite
  LEFT JOIN executions e ON e.suite = p.suite AND e.test = p.test AND e.target = p.target
 WHERE p.selected
 -- the run, too, so that asking for the tests of one run reads only that run
 GROUP BY p.suite, p.test, p.target, s.run

VIEW spend:
SELECT e.run, e.suite, c.counts_as AS purpose, count(*) AS calls,
       sum(c.status = 'responded') AS responded, sum(c.status = 'failed') AS failed,
       sum(c.cost_usd) AS cost_usd,
       sum(c.is_unknown) AS unknown_costs,
       -- An attempt that begins again is given again what the one before it was given, or was
       -- answered itself: that was paid for once.
       sum(coalesce(c.cost_then_usd + c.failed_then_usd, c.cost_then_usd, c.failed_then_usd))
         FILTER (WHERE c.attempt = e.attempt
                   AND coalesce(c.recorded_in, '') NOT GLOB e.id || '.*') AS cost_then_usd,
       sum(coalesce(c.unknown_then, 0) + (c.recorded_in IS NOT NULL AND c.cost_then_usd IS NULL))
         FILTER (WHERE c.attempt = e.attempt
                   AND coalesce(c.recorded_in, '') NOT GLOB e.id || '.*') AS unknown_costs_then,
       sum(c.recorded_in IS NOT NULL) AS calls_from_history,
       sum(c.input_tokens) AS input_tokens, sum(c.output_tokens) AS output_tokens
  FROM executions e
  JOIN counted_calls c ON c.execution = e.id
 GROUP BY e.run, e.suite, c.counts_as

VIEW run_list:
SELECT r.id AS run, {RUN_LABEL} AS label, r.project,
       r.started_at, r.ended, r.passed, r.planned, r.duration_ms, r.git_branch, r.git_commit,
       (SELECT group_concat(s.name, ', ') FROM suites s WHERE s.run = r.id) AS suites,
       (SELECT count(*) FROM executions e
         WHERE e.run = r.id AND e.status = 'passed') AS passed_executions,
       (SELECT count(*) FROM executions e
         WHERE e.run = r.id AND e.status = 'failed') AS failed_executions,
       (SELECT count(*) FROM executions e
         WHERE e.run = r.id AND e.status = 'errored') AS errored_executions
  FROM runs r
  LEFT JOIN run_labels l ON l.run = r.id
 ORDER BY r.started_at DESC
""",  # noqa: S608 (constants of this package)
)

PROJECTIONS = (
    RUNS,
    SUITES,
    EXECUTIONS,
    PROVIDER_CALLS,
    TOOL_CALLS,
    AGENT_SPANS,
    ASSERTIONS,
    GATES,
    BASELINES,
    REVIEWS,
    VIEWS,
)
