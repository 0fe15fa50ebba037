"""The largest values that kindlm accepts, in files and on the command line.

They are here so that `--help` can name them without loading any file format.
"""

from __future__ import annotations

MAX_REPEAT = 100
"""How often a test can be run in a run."""

MAX_CONCURRENCY = 32
"""How many executions can run at once, where no configuration of scenarios asks for more."""

MAX_WORKERS = 256
"""How many processes can share a run on one machine."""

MAX_SHARDS = 9_999
"""Into how many shards a run can be divided."""

MAX_COUNTED = 10**9
"""How many tokens, and how many dollars, an answer may report: what says more is wrong. The sum of
an execution is then less than what an export of its run can hold."""

MAX_TIMEOUT_S = 7 * 24 * 3600
"""How long a scenario may be given: what is longer is meant to be no limit, and there is one."""

SCHEDULERS = ("tcp://", "tls://")
"""How the address begins of a scheduler whose workers share a run."""

MAX_RETRY_AFTER_S = 300.0
"""A provider or agent that asks for a longer pause is not called any more, and no limit is measured
that is lower than one call in this time."""
