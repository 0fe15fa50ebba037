"""The comparison of two runs as JSON, with a published schema (`diff.schema.json`)."""

from __future__ import annotations

from typing import Any, TextIO

from kindlm import __version__
from kindlm.history.diff.call_changes import CallChange, ChangedValue
from kindlm.history.diff.compared_tests import compare_figures, compare_models
from kindlm.history.diff.details import TestDetails, WordDiff
from kindlm.history.diff.evidence_values import Kind, Side, TestDiff
from kindlm.history.diff.run_diff import RunDiff
from kindlm.history.run_view import RunView
from kindlm.history.statistics import wilson_interval
from kindlm.matching import ABSENT
from kindlm.reports.diff.phrases import headline_of, next_step, notes_of
from kindlm.reports.facts import git_state
from kindlm.reports.report_registry import ReportOptions
from kindlm.reports.untrusted import json_in_pieces
from kindlm.spelling import fields_of

SCHEMA_VERSION = 1

_WITHOUT_DETAILS = (Kind.UNCHANGED, Kind.ERASED, Kind.OTHER_WORDS, Kind.NOT_RUN)


def write_diff(diff: RunDiff, out: TextIO, options: ReportOptions) -> None:
    """Write the comparison test by test; `verbose` adds details of tests that did not change."""
    hidden = () if options.verbose else _WITHOUT_DETAILS
    tests = (
        _test(test, None if test.kind in hidden else diff.details(test)) for test in diff.tests
    )
    out.writelines(json_in_pieces(_head(diff), "tests", tests))


def _head(diff: RunDiff) -> dict[str, Any]:
    headline, step = headline_of(diff), next_step(diff)
    paired = diff.evidence.paired
    return {
        "schemaVersion": SCHEMA_VERSION,
        "kindlm": __version__,
        "before": _run(diff.before),
        "after": _run(diff.after),
        "verdict": {
            "verdict": diff.verdict,
            "headline": f"{headline.word}: {'; '.join(headline.reasons)}",
            "fails": diff.fails,
            "failOn": diff.options.fail_on,
            "next": step._asdict(),
        },
        "summary": {
            "compared": diff.compared,
            "kinds": {kind.value: len(diff.kinds.get(kind, ())) for kind in Kind},
        },
        "attempts": diff.attempts,
        "notes": list(notes_of(diff)),
        "passRate": paired and fields_of(paired, "tests change interval pWorse pBetter"),
        "figures": [figure._asdict() for figure in compare_figures(diff.tests)],
        "models": [change._asdict() for change in compare_models(diff.tests)],
        "configs": [
            {
                **fields_of(config, "suite before after"),
                "changes": list(map(_change, config.changes)),
                "leftOut": config.left_out,
            }
            for config in diff.configs
        ],
    }


def _run(view: RunView) -> dict[str, Any]:
    info = view.info
    return {
        **fields_of(info, "id label"),
        "status": view.status,
        **fields_of(info, "mode startedAt planned"),
        "missing": view.missing,
        "git": None if info.git_commit is None else git_state(info),
        "headHash": info.head,
    }


def _change(change: ChangedValue) -> dict[str, Any]:
    """Return a changed place; a side without a value is left out."""
    return {name: value for name, value in change._asdict().items() if value is not ABSENT}


def _test(test: TestDiff, details: TestDetails | None) -> dict[str, Any]:
    evidence, rate = test.evidence, test.pair.rate
    return {
        **test.key._asdict(),
        **fields_of(evidence, "change strength"),
        **fields_of(test, "kind fails"),
        "before": test.before and _side(test.before),
        "after": test.after and _side(test.after),
        "added": test.added._asdict() if test.added.n else None,
        **({"addedBefore": test.added_before._asdict()} if test.added_before.n else {}),
        "evidence": {
            "pValue": rate and rate.p_value,
            "interval": rate and rate.interval,
            **fields_of(evidence, "repeatsToSettle droppedScores settlement"),
        },
        "changed": {
            **fields_of(test.behaviour, "tools arguments"),
            "checks": test.behaviour.failures,
            "checksMade": test.behaviour.checks,
            **fields_of(test.behaviour, "output turns erased"),
        },
        "details": details and _details(details),
    }


def _side(side: Side) -> dict[str, Any]:
    passed, n = side.counts
    return {
        "status": side.status,
        "passed": passed,
        "failed": n - passed - side.errored,
        "errored": side.errored,
        "passRateInterval": wilson_interval(passed, n),
        "execution": side.usual,
        "alike": side.alike,
        "latencyMs": side.means.get("latency"),
        "tokens": side.means.get("tokens"),
        "costUsd": side.means.get("cost"),
        "drift": side.means.get("drift"),
        "scores": dict(side.scores),
        "models": side.models,
    }


def _details(details: TestDetails) -> dict[str, Any]:
    return {
        "calls": [_call(change) for change in details.calls],
        "sequences": [found._asdict() for found in details.sequences],
        "output": _words(details.words.get("output")),
        "checks": [
            {
                **fields_of(check, "kind label"),
                "before": fields_of(check.before, "passed of score"),
                "after": fields_of(check.after, "passed of score"),
                **fields_of(check, "failureCode message"),
                "evidence": check.evidence
                and {
                    "before": check.evidence.all_before._asdict(),
                    "after": check.evidence.all_after._asdict(),
                    **fields_of(check.evidence, "strength pValue interval"),
                },
            }
            for check in details.checks
        ],
        "errors": {"before": details.errors[0], "after": details.errors[1]},
        "system": _words(details.words.get("system")),
        "user": _words(details.words.get("user")),
        "config": details.config,
        "answers": [
            {"turn": place, "words": _words(words)}
            for place, words in details.words.items()
            if isinstance(place, int)
        ],
    }


def _call(change: CallChange) -> dict[str, Any]:
    before, after = change.before, change.after
    return {
        "edit": change.edit,
        "tool": change.made.tool,
        "before": before and before.position,
        "after": after and after.position,
        "turnBefore": before and before.turn,
        "turnAfter": after and after.turn,
        "made": change.made.arguments,
        "arguments": list(map(_change, change.arguments)),
    }


def _words(words: WordDiff | None) -> dict[str, Any] | None:
    return words and fields_of(words, "segments leftOut")
