"""Sections that are required only where something uses them."""

from __future__ import annotations

from kindlm.config.diagnostics import Reporter
from kindlm.config.places import Path, dotted
from kindlm.config.raw import Raw, expectations, items, section


def check_requirements(raw: Raw, reporter: Reporter) -> None:
    """Report sections and keys that are not there, and without which the tests cannot run.

    A test with a `command` needs none of them, one that runs on an agent needs a prompt.
    """
    tests = [(path, test) for path, test in items(raw, "tests") if "command" not in test]
    if not raw.get("models"):
        if tests and not raw.get("agents"):
            _report_absent("models", raw, reporter)
        elif judged := _judged(raw):
            reporter.error(
                judged,
                f"{dotted(judged)} needs a model that judges, and no model is configured",
                "Add `models:` with one that has `role: judge`",
                reason="no_judge",
            )
    elif not raw.get("providers"):
        _report_absent("providers", raw, reporter)
    if tests and not raw.get("prompts"):
        _report_absent("prompts", raw, reporter)
    for path, test in tests:
        if "prompt" not in test:
            reporter.missing_key((*path, "prompt"))


def _judged(raw: Raw) -> Path | None:
    """Return the place of the first expectation that asks a model."""
    for path, test in items(raw, "tests"):
        for place, expect in expectations(test):
            if expect.get("judge"):
                return (*path, *place, "judge")
            drift = section(expect, "baseline").get("drift")
            if isinstance(drift, dict) and drift.get("method", "judge") == "judge":
                return (*path, *place, "baseline", "drift")
    return None


def _report_absent(key: str, raw: Raw, reporter: Reporter) -> None:
    if key not in raw:
        reporter.missing_key((key,))
    elif isinstance(raw[key], (dict, list)):
        reporter.error((key,), f"{key} must have at least 1 entry, but has none", reason="schema")
