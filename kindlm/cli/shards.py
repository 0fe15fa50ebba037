"""Shards: one run split over several processes or machines, and what they share."""

from __future__ import annotations

from collections.abc import Mapping

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result

__all__ = ["group_of", "parse_shard"]

_CI_RUNS = (
    ("GITHUB_RUN_ID", "GITHUB_RUN_ATTEMPT"),
    ("CI_PIPELINE_ID", None),
    ("CIRCLE_WORKFLOW_ID", None),
    ("BUILDKITE_BUILD_ID", "BUILDKITE_RETRY_COUNT"),
    ("BUILD_TAG", None),
    ("BUILD_BUILDID", None),
)
"""What names a run of a CI service, the same in all its jobs, and which try of it this is: GitHub,
GitLab, CircleCI, Buildkite, Jenkins, Azure Pipelines."""


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
    for run, attempt in _CI_RUNS:
        if environ.get(run):
            again = environ.get(attempt, "") if attempt else ""
            return f"{environ[run]}.{again}" if again else environ[run]
    return None


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdigit() and len(text) < 6
