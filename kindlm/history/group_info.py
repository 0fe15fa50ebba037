"""What is said of a group of shards as of one run, from what is known of each shard."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Sequence
from typing import TypeVar

from kindlm.history.groups import Group
from kindlm.history.rows import RunInfo

__all__ = ["group_info", "lacking_shards", "what_lacks"]

_T = TypeVar("_T", bound=Hashable)


def group_info(group: Group, shards: Sequence[RunInfo]) -> RunInfo:
    """Return a group as a run; what its shards do not agree on is None.

    `duration_ms` is that of all shards together. Nobody was told a verdict of it when it ended.
    """
    git = _agreed((info.git_commit, info.git_branch) for info in shards) or (None, None)
    ended = [info.finished_at for info in shards if info.finished_at is not None]
    return RunInfo(
        id=group.name,
        label=_agreed(info.label for info in shards),
        project=shards[0].project,
        mode=shards[0].mode,
        planned=sum(info.planned for info in shards),
        started_at=min(info.started_at for info in shards),
        finished_at=max(ended) if group.complete else None,
        ended="finished" if group.complete else "incomplete",
        reason=None if group.complete else what_lacks(group),
        passed=None,
        duration_ms=sum(info.duration_ms or 0.0 for info in shards) if group.complete else None,
        git_commit=git[0],
        git_branch=git[1],
        git_dirty=any(info.git_dirty for info in shards) if git[0] else None,
        ci=_agreed(info.ci for info in shards),
        kindlm_version=", ".join(sorted({info.kindlm_version for info in shards})),
        source_run=None,
        group_id=group.name,
        shard=None,
        head=None,
    )


def what_lacks(group: Group) -> str:
    """Return in words which shards are not here or did not finish."""
    return ", ".join(f"shard {shard} {how}" for shard, how in lacking_shards(group))


def lacking_shards(group: Group) -> list[tuple[str, str]]:
    """Return the shards, as `i/n`, that are not here or did not finish, and which of the two."""
    lacking = [(index, "is not here") for index in group.missing]
    for shard in group.unfinished:
        verb = "is" if shard.state == "running" else "was"
        lacking.append((shard.index, f"{verb} {shard.state} (run {shard.run})"))
    return [(f"{index}/{group.count}", how) for index, how in sorted(lacking)]


def _agreed(values: Iterable[_T]) -> _T | None:
    different = set(values)
    return different.pop() if len(different) == 1 else None
