"""Warnings of limits that can never be exceeded, and of gates that have nothing to measure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator

from kindlm.checks.limits import beyond
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path
from kindlm.config.expect import expect_sections
from kindlm.config.files import ReferencedFiles
from kindlm.config.schema import GatesConfig, KindlmConfig, TestConfig
from kindlm.config.targets import targets_of
from kindlm.errors import Ok

_COUNTING = {
    "schema_failures_max": (("schema",), "no test has a `schemaFile`"),
    "pii_failures_max": (("pii",), "no test checks `guardrails.pii`"),
    "keyword_failures_max": (
        ("keywords_deny", "keywords_allow"),
        "no test checks `guardrails.keywords`",
    ),
}
_MEASURING = {
    "judge_avg_min": ("judge", "no test has a judge"),
    "drift_score_max": ("drift", "no test measures drift"),
}


def warn_of_limits(config: KindlmConfig, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report gates and thresholds that hold whatever happens, or can never hold."""
    _warn_of_gates(config, _checks(config, files), reporter)
    for path, reason in _thresholds(config):
        reporter.warning(
            path, f"This can never fail: {reason}", "Change or remove it", reason="never_fails"
        )


def _warn_of_gates(config: KindlmConfig, checks: Counter[str], reporter: Reporter) -> None:
    gates = config.gates
    for name in sorted(gates.model_fields_set):
        alias = GatesConfig.model_fields[name].alias or name
        path: Path = ("gates", alias)
        if name in _MEASURING and not checks[_MEASURING[name][0]]:
            reporter.warning(
                path,
                f"The gate {alias} fails: {_MEASURING[name][1]}, so that it has no value",
                "Remove it, or add what it measures",
                reason="no_value",
            )
            continue
        always = _holds_always(name, config, checks)
        if always is not None:
            reporter.warning(
                path,
                f"The gate {alias} can never fail: {always}",
                "Change or remove it",
                reason="never_fails",
            )


def _holds_always(name: str, config: KindlmConfig, checks: Counter[str]) -> str | None:
    """Return why a gate holds whatever happens, None if it can fail."""
    value = getattr(config.gates, name)
    if name in _COUNTING:
        kinds, nothing = _COUNTING[name]
        possible = sum(checks[kind] for kind in kinds)
        if not possible:
            return nothing
        return f"there are only {possible:,} such checks" if value >= possible else None
    timeout = config.defaults.execution_timeout_ms
    return {
        "pass_rate_min": "every share of tests may fail" if value == 0 else None,
        "judge_avg_min": "no score is less than 0" if value == 0 else None,
        "drift_score_max": "no drift is more than 1" if value == 1 else None,
        "latency_max_ms": beyond(timeout) if value >= timeout else None,
    }.get(name)


def _checks(config: KindlmConfig, files: ReferencedFiles) -> Counter[str]:
    """Return how many checks of each kind a whole run makes."""
    total: Counter[str] = Counter()
    for index, test in enumerate(config.tests):
        times = _executions(test, config, files)
        for _, expect in expect_sections(("tests", index), test):
            for _, expectation in expect.expectations(lambda _: None):
                total[expectation.kind] += times
    return total


def _executions(test: TestConfig, config: KindlmConfig, files: ReferencedFiles) -> int:
    rows = files.rows(test.vars_from) if test.vars_from is not None else None
    return (
        len(targets_of(test, config))
        * (test.repeat or config.defaults.repeat)
        * (len(rows.value.rows) if isinstance(rows, Ok) else 1)
    )


def _thresholds(config: KindlmConfig) -> Iterator[tuple[Path, str]]:
    """Yield limits and checks of tests that hold always, and why."""
    if config.defaults.pass_rate == 0:
        yield ("defaults", "passRate"), "every share of repeats may fail"
    timeout = config.defaults.execution_timeout_ms
    for index, test in enumerate(config.tests):
        if test.pass_rate == 0:
            yield ("tests", index, "passRate"), "every share of repeats may fail"
        for path, expect in expect_sections(("tests", index), test):
            for place, part in expect.written():
                for inner, reason in part.never_fails(timeout):
                    yield (*path, *place, *inner), reason
