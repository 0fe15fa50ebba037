"""The largest values that kindlm accepts, in files and on the command line."""

from __future__ import annotations

MAX_REPEAT = 100
"""The most repeats of a test in a run."""

MAX_CONCURRENCY = 32
"""The most executions at once, unless the configuration of scenarios sets more."""

MAX_WORKERS = 256
"""The most processes that share a run on one machine."""

MAX_SHARDS = 9_999
"""The most shards of a run."""

MAX_LISTED_RUNS = 10_000
"""The most runs that a history server lists at once; any group of shards fits in."""

MAX_COUNTED = 10**9
"""The most tokens, and dollars, that an answer may report; more is refused as wrong. The sum of an
execution then fits into an export."""

MAX_TIMEOUT_S = 7 * 24 * 3600
"""The longest timeout of a scenario."""

SCHEDULERS = ("tcp://", "tls://")
"""The beginnings of the address of a scheduler, whose workers share a run."""

MAX_RETRY_AFTER_S = 300.0
"""A provider or agent that requests a longer pause is not called again; nor is a rate measured that
is lower than one call in this time."""
