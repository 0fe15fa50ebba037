"""Shards: one run split over several processes or machines, and what they share."""

from __future__ import annotations

from collections.abc import Mapping

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result

_CI_RUNS = (
    "GITHUB_RUN_ID",
    "CI_PIPELINE_ID",
    "CIRCLE_WORKFLOW_ID",
    "BUILDKITE_BUILD_ID",
    "BUILD_TAG",
    "BUILD_BUILDID",
)
"""What names a run of a CI service, the same in all its jobs: GitHub, GitLab, CircleCI, Buildkite,
Jenkins, Azure Pipelines. Without the number of a retry: who repeats only the jobs that failed
repeats some of the shards, and all of them are one group still."""


def parse_shard(text: str) -> Result[tuple[int, int]]:
    """Return what `--shard i/n` means: this is number i of n, from 1."""
    index, slash, shards = text.partition("/")
    if slash and _is_number(index) and _is_number(shards) and 1 <= int(index) <= int(shards):
        return Ok((int(index), int(shards)))
    return Err(
        KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"--shard {text!r} is no shard.",
            "Write which of how many this is, from 1: --shard 2/4",
        )
    )


def group_of(named: str | None, environ: Mapping[str, str]) -> str | None:
    """Return what the shards of one run share: what is named, else the run of the CI service."""
    if named:
        return named
    return next((environ[name] for name in _CI_RUNS if environ.get(name)), None)


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6
