"""Tables of executions: their attempts, the calls in them, and the assertions.

A table of executions shows their last attempts; the tables of calls and assertions have all. The
folds also read the columns in `run_tables.COLUMNS`.
"""

from __future__ import annotations

from kindlm_store import Projection

# The result of an attempt, in both tables, from the event of its end.
_OUTCOME = """
        output_ref TEXT REFERENCES contents (ref), error_code TEXT, error_number INTEGER,
        error_ref TEXT REFERENCES contents (ref), hint TEXT, trace_ref TEXT, answers INTEGER,
        latency_ms REAL, input_tokens INTEGER, output_tokens INTEGER, cost_usd REAL,
        cost_source TEXT, cost_then_usd REAL, finish_reason TEXT, warnings TEXT, score REAL"""

_ENDED = """
               at AS finished_at, FIELDS OF data (
                   status, output_ref, error_code, error_number, error_ref, hint, trace_ref,
                   answers, latency_ms, cost_usd, cost_source, cost_then_usd, score),
               data ->> '$."gen_ai.usage.input_tokens"' AS input_tokens,
               data ->> '$."gen_ai.usage.output_tokens"' AS output_tokens,
               data ->> '$."gen_ai.response.finish_reason"' AS finish_reason,
               coalesce(data ->> 'warnings', '[]') AS warnings"""

EXECUTIONS = Projection(
    "executions",
    version=8,
    # `source` and `source_attempt` are the attempt that held the conversation, which may be in
    # another run. The second index covers the figures of run lists.
    sql=f"""
    CREATE TABLE executions (
        id TEXT NOT NULL, run TEXT REFERENCES runs (id), suite TEXT REFERENCES suites (id),
        number INTEGER, test TEXT, target TEXT, repeat INTEGER, attempt INTEGER, status TEXT,
        tags TEXT, started_at TEXT, finished_at TEXT, messages TEXT, tools_ref TEXT, {_OUTCOME},
        source TEXT, source_attempt INTEGER, first_event INTEGER,
        PRIMARY KEY (id));
    CREATE INDEX executions_suite_test_target ON executions (suite, test, target);
    CREATE INDEX executions_run_status_cost_usd_answers
        ON executions (run, status, cost_usd, answers);
    CREATE TABLE retried_attempts (
        execution TEXT REFERENCES executions (id), attempt INTEGER, status TEXT, finished_at TEXT,
        {_OUTCOME},
        PRIMARY KEY (execution, attempt)) WITHOUT ROWID;
    -- Events of several attempts may be folded in any order; only the last attempt counts.
    ON execution.started:
        REPLACE INTO executions BY NAME
        SELECT execution AS id, run, run || '/' || (data ->> 'suite') AS suite, number, attempt,
               FIELDS OF data (test, target, repeat, messages, tools_ref), at AS started_at,
               coalesce(data ->> 'tags', '[]') AS tags,
               -- such as `k3f9x2ab-17.2`
               coalesce(rtrim(rtrim(data ->> 'source', '0123456789'), '.'), execution) AS source,
               coalesce(CAST(replace(data ->> 'source',
                   rtrim(data ->> 'source', '0123456789'), '') AS INTEGER), attempt)
                   AS source_attempt,
               version AS first_event
          FROM (SELECT *, max(attempt * 1000000000000 + seq) FROM new_events GROUP BY execution) n
         WHERE NOT EXISTS (
                 SELECT 1 FROM executions e WHERE e.id = n.execution AND e.attempt > n.attempt)
         ORDER BY seq
    -- An attempt that is retried: the execution itself has not ended.
    ON execution.finished:
        INSERT INTO retried_attempts BY NAME
        SELECT execution, attempt, {_ENDED}
          FROM new_events WHERE data ->> 'retried' ORDER BY seq
    ON execution.finished:
        INSERT INTO executions BY NAME
        SELECT execution AS id, {_ENDED}
          FROM new_events n
         WHERE NOT coalesce(data ->> 'retried', 0)
           AND EXISTS (SELECT 1 FROM executions e
                        WHERE e.id = n.execution AND e.attempt = n.attempt
                          AND e.first_event < n.version)
         ORDER BY seq
        ON CONFLICT (id) DO UPDATE BY NAME
    """,  # noqa: S608 (constants of this module)
)

# Each call to a model or an agent, retries and judges included. For an agent, `provider` is the
# adapter and `model` the agent's id.
PROVIDER_CALLS = Projection(
    "provider_calls",
    version=7,
    sql="""
    CREATE TABLE provider_calls (
        execution TEXT NOT NULL REFERENCES executions (id), attempt INTEGER, call INTEGER,
        run TEXT REFERENCES runs (id), purpose TEXT, provider TEXT, model TEXT,
        reported_model TEXT, try INTEGER, status TEXT, requested_at TEXT, answered_at TEXT,
        fingerprint TEXT, parameters TEXT, after INTEGER, assertion INTEGER, messages TEXT,
        text_ref TEXT REFERENCES contents (ref), tool_calls TEXT, finish_reason TEXT,
        input_tokens INTEGER, output_tokens INTEGER, latency_ms REAL, cost_usd REAL,
        cost_source TEXT, recorded_in TEXT, cost_then_usd REAL, failed_then_usd REAL,
        unknown_then INTEGER, error_code TEXT, error_number INTEGER, http_status INTEGER,
        error_ref TEXT REFERENCES contents (ref),
        retry_in_ms REAL, raw_ref TEXT REFERENCES contents (ref),
        reported_ref TEXT REFERENCES contents (ref), reports_tools INTEGER, warnings TEXT,
        first_event INTEGER,
        PRIMARY KEY (execution, attempt, call));
    ON provider.requested agent.sent:
        INSERT INTO provider_calls BY NAME
        SELECT execution, attempt, run, FIELDS OF data (call, fingerprint, after, assertion),
               iif(type = 'agent.sent', 'test', data ->> 'purpose') AS purpose,
               coalesce(data ->> '$."gen_ai.provider.name"', data ->> 'adapter') AS provider,
               coalesce(data ->> '$."gen_ai.request.model"', data ->> 'agent') AS model,
               data ->> 'attempt' AS try, coalesce(data ->> 'parameters', '{}') AS parameters,
               coalesce(data ->> 'messages', '[]') AS messages,
               at AS requested_at, version AS first_event
          FROM new_events ORDER BY seq
    ON provider.responded agent.replied provider.failed agent.failed:
        UPDATE provider_calls
           SET status = n.status, answered_at = n.at, text_ref = n.data ->> '$.text.$ref',
               tool_calls = iif(n.status = 'failed', NULL,
                                coalesce(n.data ->> 'tool_calls', '[]')),
               finish_reason = n.data ->> '$."gen_ai.response.finish_reason"',
               reported_model = n.data ->> '$."gen_ai.response.model"',
               input_tokens = n.data ->> '$."gen_ai.usage.input_tokens"',
               output_tokens = n.data ->> '$."gen_ai.usage.output_tokens"',
               latency_ms = real(n.data ->> 'latency_ms'), cost_usd = real(n.data ->> 'cost_usd'),
               cost_source = n.data ->> 'cost_source', recorded_in = n.data ->> 'recorded_in',
               cost_then_usd = real(n.data ->> 'cost_then_usd'),
               failed_then_usd = real(n.data ->> 'failed_then_usd'),
               unknown_then = n.data ->> 'unknown_then',
               error_code = n.data ->> 'error_code', error_number = n.data ->> 'error_number',
               http_status = n.data ->> 'status', error_ref = n.data ->> '$.message.$ref',
               retry_in_ms = real(n.data ->> 'retry_in_ms'), raw_ref = n.data ->> '$.raw.$ref',
               reported_ref = n.data ->> '$.reported.$ref',
               -- Whether the answer would contain tool calls. Models always report them. Events of
               -- earlier versions do not say it of agents: there, only a reported call shows it.
               reports_tools = CASE n.type
                   WHEN 'provider.responded' THEN 1
                   WHEN 'agent.replied' THEN coalesce(n.data ->> 'reports_tools',
                       json_array_length(n.data, '$.tool_calls') > 0, 0) END,
               warnings = iif(n.status = 'failed', NULL, coalesce(n.data ->> 'warnings', '[]'))
          FROM (SELECT *, iif(type GLOB '*.failed', 'failed', 'responded') AS status, max(seq)
                  FROM new_events GROUP BY execution, attempt, data ->> 'call') n
         WHERE provider_calls.execution = n.execution AND provider_calls.attempt = n.attempt
           AND call = n.data ->> 'call' AND first_event < n.version
    """,
)

# Each tool call with its result.
TOOL_CALLS = Projection(
    "tool_calls",
    version=2,
    sql="""
    CREATE TABLE tool_calls (
        execution TEXT NOT NULL REFERENCES executions (id), attempt INTEGER, position INTEGER,
        run TEXT REFERENCES runs (id), call INTEGER, tool TEXT, call_id TEXT,
        arguments_ref TEXT REFERENCES contents (ref), rule TEXT,
        response_ref TEXT REFERENCES contents (ref), problems TEXT, called_at TEXT,
        first_event INTEGER,
        PRIMARY KEY (execution, attempt, position));
    ON tool.called:
        INSERT INTO tool_calls BY NAME
        SELECT execution, attempt, data ->> 'index' AS position, run,
               FIELDS OF data (call, arguments_ref), data ->> '$."gen_ai.tool.name"' AS tool,
               data ->> '$."gen_ai.tool.call.id"' AS call_id, at AS called_at,
               version AS first_event
          FROM new_events ORDER BY seq
    -- The calls that an agent reports; simulated ones are recorded already.
    ON agent.replied:
        INSERT INTO tool_calls BY NAME
        SELECT execution, attempt, t.value ->> 'index' AS position, run, data ->> 'call' AS call,
               FIELDS OF t.value (arguments_ref, response_ref), t.value ->> 'name' AS tool,
               t.value ->> 'id' AS call_id,
               coalesce(nullif(t.value ->> 'rule', ''), 'agent') AS rule,
               nullif(t.value ->> 'problems', '[]') AS problems, at AS called_at,
               version AS first_event
          FROM new_events, json_each(data, '$.tool_calls') t
         WHERE NOT coalesce(t.value ->> 'simulated', 0)
         ORDER BY seq, t.key
    ON tool.simulated:
        UPDATE tool_calls
           SET rule = n.data ->> 'rule', response_ref = n.data ->> '$.response.$ref',
               problems = nullif(n.data ->> 'problems', '[]')
          FROM (SELECT *, max(seq) FROM new_events
                 GROUP BY execution, attempt, data ->> 'index') n
         WHERE tool_calls.execution = n.execution AND tool_calls.attempt = n.attempt
           AND position = n.data ->> 'index' AND first_event < n.version
    """,
)

# Each span that an agent exported, in the order of the tree.
AGENT_SPANS = Projection(
    "agent_spans",
    version=1,
    sql="""
    CREATE TABLE agent_spans (
        execution TEXT NOT NULL REFERENCES executions (id), attempt INTEGER, call INTEGER,
        position INTEGER, run TEXT REFERENCES runs (id), span TEXT, parent TEXT, kind TEXT,
        name_ref TEXT REFERENCES contents (ref), start_ms REAL, duration_ms REAL, failed INTEGER,
        message_ref TEXT REFERENCES contents (ref), input_ref TEXT REFERENCES contents (ref),
        output_ref TEXT REFERENCES contents (ref), input_tokens INTEGER, output_tokens INTEGER,
        PRIMARY KEY (execution, attempt, call, position)) WITHOUT ROWID;
    ON agent.traced:
        INSERT INTO agent_spans BY NAME
        SELECT execution, attempt, data ->> 'call' AS call, s.key AS position, run,
               s.value ->> 'id' AS span, FIELDS OF s.value (
                   parent, kind, name_ref, start_ms, duration_ms, message_ref, input_ref,
                   output_ref),
               coalesce(s.value ->> 'failed', 0) AS failed,
               s.value ->> '$."gen_ai.usage.input_tokens"' AS input_tokens,
               s.value ->> '$."gen_ai.usage.output_tokens"' AS output_tokens
          FROM new_events, json_each(data, '$.spans') s
         ORDER BY seq, s.key
    """,
)

ASSERTIONS = Projection(
    "assertions",
    version=5,
    sql="""
    CREATE TABLE assertions (
        execution TEXT REFERENCES executions (id), attempt INTEGER, position INTEGER,
        run TEXT REFERENCES runs (id), kind TEXT, label TEXT, outcome TEXT, score REAL,
        threshold REAL, failure_code TEXT, message_ref TEXT REFERENCES contents (ref),
        expected_ref TEXT REFERENCES contents (ref), actual_ref TEXT REFERENCES contents (ref),
        evidence TEXT, reasoning_ref TEXT REFERENCES contents (ref), trace_ref TEXT,
        duration_ms REAL, line INTEGER, turn INTEGER, advisory INTEGER, demands TEXT,
        PRIMARY KEY (execution, attempt, position)) WITHOUT ROWID;
    ON assertion.evaluated:
        INSERT INTO assertions BY NAME
        SELECT execution, attempt, data ->> 'index' AS position, run,
               FIELDS OF data (
                   label, threshold, failure_code, message_ref, expected_ref, actual_ref,
                   trace_ref, duration_ms, line, turn, demands),
               data ->> '$."gen_ai.evaluation.name"' AS kind,
               data ->> '$."gen_ai.evaluation.score.label"' AS outcome,
               real(data ->> '$."gen_ai.evaluation.score.value"') AS score,
               data ->> '$."gen_ai.evaluation.explanation".$ref' AS reasoning_ref,
               coalesce(data ->> 'evidence', '[]') AS evidence,
               coalesce(data ->> 'advisory', 0) AS advisory
          FROM new_events ORDER BY seq
    """,
)
