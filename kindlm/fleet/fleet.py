"""Where the shards of a run are carried out: the seam between a coordinator and its workers.

A job and its end cross this seam as JSON texts, so that nothing of kindlm is ever pickled. What
carries out a job calls `kindlm.fleet.shard_job.run_shard` with it, in a thread of its own.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Protocol, Self

from kindlm.errors import Result


@dataclass(frozen=True, slots=True)
class ShardJob:
    """One shard of a run, to be carried out somewhere.

    Attributes:
        url: Address of the coordinator's history.
        token: What opens it, for this run alone.
        shard: Number of the shard, from 1.
        arguments: What `kindlm test` is given if the shard starts anew.
        again: What it is given, besides the run, if an unfinished run of the shard goes on.
        folder: Where `kindlm test` is started; paths among the arguments are relative to it.
        environ: What its environment has besides that of the worker.
    """

    url: str
    token: str
    shard: int
    arguments: tuple[str, ...]
    again: tuple[str, ...]
    folder: str
    environ: Mapping[str, str] = field(default_factory=dict)

    def dump(self) -> str:
        """Return the job as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """Return the job that a text holds."""
        job = json.loads(text)
        return cls(**job | {name: tuple(job[name]) for name in ("arguments", "again")})


@dataclass(frozen=True, slots=True)
class ShardEnd:
    """How the process of a shard ended. What it did is in the history of the coordinator.

    `code` is its exit code, negative for a signal; None if none was started. `said` is what it
    wrote last to standard error, or why none was started.
    """

    code: int | None
    said: str = ""

    def dump(self) -> str:
        """Return the end as a text."""
        return json.dumps(asdict(self))

    @classmethod
    def load(cls, text: str) -> Self:
        """Return the end that a text holds."""
        return cls(**json.loads(text))


class Pending(Protocol):
    """A job that was submitted; the futures of Python and of Dask have these methods."""

    def done(self) -> bool:
        """Return whether the job has ended, however it did."""
        ...

    def result(self) -> str:
        """Return how the shard ended; raise what kept the job from being carried out."""
        ...

    def cancel(self) -> object:
        """Let the job not start any more."""
        ...


class Fleet(Protocol):
    """Workers that carry out jobs, each one at a time."""

    @property
    def listen(self) -> tuple[str, int]:
        """Where the history is served to them: a host of this machine, and a port or 0."""
        ...

    @property
    def capacity(self) -> int:
        """How many jobs can go on at once now."""
        ...

    def check(self, url: str, /) -> Result[None]:
        """Return an error if a worker does not reach the history: then none gets a job."""
        ...

    def submit(self, job: str) -> Pending:
        """Let some worker carry out a job, after those that were submitted before."""
        ...

    def interrupt(self) -> None:
        """Send Ctrl-C to what goes on, where that is possible: it stops already, and has to end."""
        ...

    def close(self) -> None:
        """End everything that was started."""
        ...
