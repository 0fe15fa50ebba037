"""Who carries out which shard: leases with numbers, of which only the newest counts.

Each claim of a shard gets the next number, and earlier leases are void. A worker that is
silent for too long loses its shard, too; what it pushes later is refused, so that two workers
never record the same run. A shard that was lost too often is given up.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

SILENT_S = 60.0
"""A worker that was not heard of for so long is gone."""

MOST_LOST = 3
"""A shard that was lost so often is given up: it may be what ends its workers."""


@dataclass(slots=True)
class _Shard:
    """A shard; `heard` is when its worker was last heard of, None while no worker has it."""

    number: int = 0
    heard: float | None = None
    lost: int = 0
    is_over: bool = False


class Leases:
    """The leases of the shards of one run. Times are those of a monotonic clock, in seconds."""

    def __init__(self, shards: Iterable[int]) -> None:
        self._shards = {shard: _Shard() for shard in shards}

    def claim(self, shard: int, now: float) -> str | None:
        """Return the lease of a worker that begins with a shard; None if it is not to be run."""
        state = self._shards.get(shard)
        if state is not None and state.heard is not None:
            self.lose(shard)
        if state is None or state.is_over:
            return None
        state.number += 1
        state.heard = now
        return f"{shard}.{state.number}"

    def hear(self, lease: str, now: float) -> bool:
        """Return whether a lease is current, and remember that its worker is alive."""
        state = self._shards.get(shard_of(lease))
        if state is None or state.heard is None or lease != f"{shard_of(lease)}.{state.number}":
            return False
        state.heard = now
        return True

    def silent(self, now: float) -> list[int]:
        """Return the shards whose workers were not heard of for too long."""
        return [
            shard
            for shard, state in self._shards.items()
            if state.heard is not None and now - state.heard > SILENT_S
        ]

    def lose(self, shard: int) -> None:
        """Take a shard from its worker, so that the next one that claims it goes on."""
        state = self._shards[shard]
        state.heard = None
        state.lost += 1
        state.is_over = state.is_over or state.lost >= MOST_LOST

    def end(self, shard: int) -> None:
        """Let no worker claim a shard any more: it is done, or it stays as it is."""
        self._shards[shard].heard = None
        self._shards[shard].is_over = True

    def is_over(self, shard: int) -> bool:
        """Return whether a shard is done or given up."""
        return self._shards[shard].is_over

    @property
    def left(self) -> list[int]:
        """The shards that are neither done nor given up."""
        return [shard for shard, state in self._shards.items() if not state.is_over]

    @property
    def live(self) -> int:
        """How many workers have a shard now."""
        return sum(state.heard is not None for state in self._shards.values())


def shard_of(lease: str) -> int:
    """Return the shard of a lease; 0, which no shard is, if it is no lease."""
    shard = lease.partition(".")[0]
    return int(shard) if shard.isascii() and shard.isdigit() and len(shard) < 7 else 0
