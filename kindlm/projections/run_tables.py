"""Tables of runs and their suites, and of the events of journals.

The last event about a suite counts: a resumed run records its suites again. Journals arrive in any
order, so the entry with the latest time counts.
"""

from __future__ import annotations

from kindlm_store import Projection

_RUN = "iif(stream GLOB 'run/*', substr(stream, 5), stream)"
_ABOUT = "iif(subject GLOB '[0-9]*.[0-9]*', {}, NULL)"
_DOT = "instr(subject, '.')"

COLUMNS = {
    "run": _RUN,
    # The subject of an event of an execution is `<number>.<attempt>`.
    "execution": _ABOUT.format(f"{_RUN} || '-' || substr(subject, 1, {_DOT} - 1)"),
    "number": _ABOUT.format("CAST(subject AS INTEGER)"),
    "attempt": _ABOUT.format(f"CAST(substr(subject, {_DOT} + 1) AS INTEGER)"),
}
"""More columns of `new_events`, in the folds of all projections."""


# `first_event`, here and in the tables of executions, is the version of the event that created the
# row. An event changes only rows that an earlier event created, also in the same batch.
RUNS = Projection(
    "runs",
    version=7,
    columns=COLUMNS,
    sql="""
    CREATE TABLE runs (
        id TEXT, project TEXT, label TEXT, mode TEXT, planned INTEGER, started_at TEXT,
        finished_at TEXT, ended TEXT, reason TEXT, passed INTEGER, exit_code INTEGER,
        duration_ms REAL, group_id TEXT, shard TEXT, git_commit TEXT, git_branch TEXT,
        git_dirty INTEGER, ci TEXT, kindlm_version TEXT, source_run TEXT, first_event INTEGER,
        PRIMARY KEY (id));
    CREATE INDEX runs_started_at ON runs (started_at DESC, id);
    CREATE TABLE run_labels (
        run TEXT REFERENCES runs (id), label TEXT, labelled_by TEXT, at TEXT, event TEXT,
        PRIMARY KEY (run));
    ON run.started:
        INSERT INTO runs BY NAME
        SELECT run AS id, FIELDS OF data (project, label, mode, planned, shard, ci, source_run),
               at AS started_at, data ->> 'group' AS group_id,
               data ->> '$.git.commit' AS git_commit, data ->> '$.git.branch' AS git_branch,
               CASE WHEN data ->> 'git' <> '{}' THEN coalesce(data ->> '$.git.dirty', 0) END
                   AS git_dirty,
               data ->> '$.versions.kindlm' AS kindlm_version, version AS first_event
          FROM new_events ORDER BY seq
    -- A run may be stopped and resumed several times in a batch: each column has its last event.
    ON run.resumed run.extended:
        UPDATE runs SET planned = n.data ->> 'planned'
          FROM (SELECT *, max(seq) FROM new_events GROUP BY run) n
         WHERE runs.id = n.run AND first_event < n.version
    ON run.resumed run.interrupted run.aborted run.finished:
        UPDATE runs
           SET ended = nullif(substr(n.type, 5), 'resumed'), reason = n.data ->> 'reason'
          FROM (SELECT *, max(seq) FROM new_events GROUP BY run) n
         WHERE runs.id = n.run AND first_event < n.version
    ON run.finished:
        UPDATE runs
           SET finished_at = n.at, passed = n.data ->> 'passed',
               exit_code = n.data ->> 'exit_code', duration_ms = real(n.data ->> 'duration_ms')
          FROM (SELECT *, max(seq) FROM new_events GROUP BY run) n
         WHERE runs.id = n.run AND first_event < n.version
    -- NULL removes the label, also the one that the run began with.
    ON run.labelled:
        INSERT INTO run_labels BY NAME
        SELECT FIELDS OF data (run, label), data ->> 'by' AS labelled_by, at, id AS event
          FROM new_events WHERE true ORDER BY seq
        ON CONFLICT (run) DO UPDATE BY NAME
         WHERE (excluded.at, excluded.event) >= (run_labels.at, run_labels.event)
    """,
)

_LAST_OF_SUITES = """
    (SELECT run || '/' || (data ->> 'ordinal') AS suite, *, max(seq) FROM new_events GROUP BY 1)
"""

SUITES = Projection(
    "suites",
    version=9,
    # The first index has both columns, since most runs have a suite of the same name.
    sql=f"""
    CREATE TABLE suites (
        id TEXT, run TEXT REFERENCES runs (id), ordinal INTEGER, name TEXT, project TEXT,
        front_end TEXT, path TEXT, config_hash TEXT, config_ref TEXT REFERENCES contents (ref),
        baseline_run TEXT, tags TEXT, started_at TEXT, skipped_tests INTEGER, error_code TEXT,
        error_number INTEGER, error_ref TEXT, hint_ref TEXT, line INTEGER, unread TEXT,
        servers TEXT, gates TEXT, PRIMARY KEY (id));
    CREATE INDEX suites_run_name ON suites (run, name);
    CREATE INDEX suites_name ON suites (name);
    CREATE TABLE planned_tests (
        suite TEXT REFERENCES suites (id), ordinal INTEGER, test TEXT, target TEXT,
        selected INTEGER, skip INTEGER, repeat INTEGER, pass_rate REAL, tags TEXT, line INTEGER,
        file TEXT, score_mean_min REAL, score_std_dev_max REAL, confidence REAL,
        PRIMARY KEY (suite, test, target)) WITHOUT ROWID;
    ON suite.started suite.skipped:
        REPLACE INTO suites BY NAME
        SELECT suite AS id, run, data ->> 'suite' AS name, FIELDS OF data (
                   ordinal, project, front_end, path, config_hash, config_ref, baseline_run,
                   error_code, error_number, hint_ref, line, gates),
               at AS started_at, data ->> '$.message.$ref' AS error_ref,
               iif(type = 'suite.skipped', data ->> 'tests', NULL) AS skipped_tests,
               iif(type = 'suite.started', coalesce(data ->> 'tags', '[]'), NULL) AS tags,
               iif(type = 'suite.started', coalesce(data ->> 'unread', '[]'), NULL) AS unread,
               iif(type = 'suite.started', coalesce(data ->> 'servers', '[]'), NULL) AS servers
          FROM {_LAST_OF_SUITES} ORDER BY seq
    ON suite.started suite.skipped:
        DELETE FROM planned_tests WHERE suite IN (SELECT suite FROM {_LAST_OF_SUITES})
    ON suite.started suite.skipped:
        REPLACE INTO planned_tests BY NAME
        SELECT suite, t.key AS ordinal, t.value ->> 'name' AS test,
               FIELDS OF t.value (target, selected, repeat, pass_rate, line, file),
               coalesce(t.value ->> 'skip', 0) AS skip,
               coalesce(t.value ->> 'tags', '[]') AS tags,
               real(t.value ->> '$.score_limits.min_mean') AS score_mean_min,
               real(t.value ->> '$.score_limits.max_std_dev') AS score_std_dev_max,
               iif(json_type(t.value, '$.confidence') IS NULL, 0.95,
                   real(t.value ->> 'confidence')) AS confidence
          FROM {_LAST_OF_SUITES} n, json_each(n.data, '$.tests') t
         WHERE n.type = 'suite.started' ORDER BY seq, t.key
    -- Tests that are dealt to a shard one by one, unless a later event described their suite.
    ON run.extended suite.started suite.skipped:
        UPDATE planned_tests SET selected = 1
          FROM new_events n, json_each(n.data, '$.tests') t
         WHERE n.type = 'run.extended'
           AND suite = n.run || '/' || (t.value ->> 'suite')
           AND test = t.value ->> 'name' AND target = t.value ->> 'target'
           AND NOT EXISTS (
                 SELECT 1 FROM new_events later
                  WHERE later.type <> 'run.extended' AND later.seq > n.seq AND later.run = n.run
                    AND later.data ->> 'ordinal' = t.value ->> 'suite')
    """,  # noqa: S608 (constants of this module)
)

GATES = Projection(
    "gates",
    version=2,
    sql="""
    CREATE TABLE gates (
        run TEXT REFERENCES runs (id), suite TEXT REFERENCES suites (id), name TEXT,
        threshold REAL, actual REAL, passed INTEGER, written INTEGER, message TEXT,
        PRIMARY KEY (run, suite, name));
    ON run.finished:
        INSERT INTO gates BY NAME
        SELECT run, FIELDS OF g.value (suite, name, threshold, actual, passed, written, message)
          FROM new_events, json_each(data, '$.gates') g ORDER BY seq, g.key
    """,
)

# A removed baseline stays as a row without a run. Otherwise, an older one would come back when its
# journal is merged later.
BASELINES = Projection(
    "baselines",
    version=3,
    sql="""
    CREATE TABLE baselines (
        project TEXT, suite TEXT, label TEXT, run TEXT REFERENCES runs (id), runs TEXT, "by" TEXT,
        at TEXT, event TEXT,
        PRIMARY KEY (project, suite, label));
    ON baseline.set baseline.removed:
        INSERT INTO baselines BY NAME
        SELECT FIELDS OF data (project, suite, run, runs), coalesce(data ->> 'label', '') AS label,
               data ->> 'by' AS "by", at, id AS event
          FROM new_events WHERE true ORDER BY seq
        ON CONFLICT (project, suite, label) DO UPDATE BY NAME
         WHERE (excluded.at, excluded.event) >= (baselines.at, baselines.event)
    -- The baseline of each suite that was set last.
    VIEW active_baselines:
    SELECT project, suite, label, run, runs, "by", at
      FROM baselines b
     WHERE run IS NOT NULL
       AND NOT EXISTS (
             SELECT 1 FROM baselines later
              WHERE later.project = b.project AND later.suite = b.suite AND later.run IS NOT NULL
                AND (later.at, later.event) > (b.at, b.event))
    """,
)

# The last review of an execution by each person.
REVIEWS = Projection(
    "reviews",
    version=3,
    sql="""
    CREATE TABLE reviews (
        execution TEXT REFERENCES executions (id), "by" TEXT, run TEXT REFERENCES runs (id),
        passed INTEGER, note_ref TEXT REFERENCES contents (ref), at TEXT, event TEXT,
        PRIMARY KEY (execution, "by"));
    ON review.recorded:
        INSERT INTO reviews BY NAME
        SELECT (data ->> 'run') || '-' || (data ->> 'execution') AS execution,
               FIELDS OF data (run, passed, note_ref), data ->> 'by' AS "by", at, id AS event
          FROM new_events WHERE true ORDER BY seq
        ON CONFLICT (execution, "by") DO UPDATE BY NAME
         WHERE (excluded.at, excluded.event) >= (reviews.at, reviews.event)
    VIEW review_log:
    SELECT v.execution, v.run, s.name AS suite, e.test, e.target, e.repeat, e.status,
           v.passed, n.body AS note, v."by", v.at
      FROM reviews v
      -- a journal may be here before the run that it speaks of
      LEFT JOIN executions e ON e.id = v.execution
      LEFT JOIN suites s ON s.id = e.suite
      LEFT JOIN shown_texts n ON n.ref = v.note_ref
    """,
)
