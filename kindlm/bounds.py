"""How much may be asked for at most: by files and by the command line alike.

The command line says so in its help, for which no format of files is loaded.
"""

from __future__ import annotations

MAX_REPEAT = 100
"""How often a test can be run in a run."""

MAX_CONCURRENCY = 32
"""How many executions can run at once, where no configuration of scenarios asks for more."""

MAX_WORKERS = 256
"""How many processes can share a run on one machine."""

MAX_TIMEOUT_S = 7 * 24 * 3600
"""How long a scenario may be given: what is longer is meant to be no limit, and there is one."""

SCHEDULERS = ("tcp://", "tls://")
"""How the address begins of a scheduler whose workers share a run."""
