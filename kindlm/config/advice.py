"""What is accepted, and yet does not do what somebody may expect of it."""

from __future__ import annotations

from kindlm.config.diagnostics import Reporter, hint_for
from kindlm.config.expect_schema import ExpectConfig
from kindlm.config.interpolation import is_deferred, names_in
from kindlm.config.places import Path, dotted
from kindlm.config.schema import KindlmConfig, TestConfig

__all__ = ["warn"]


def warn(config: KindlmConfig, reporter: Reporter) -> None:
    """Report what has no effect, or checks nothing."""
    for path, asked_for, message in _not_served(config):
        if asked_for:
            hint = f"Remove `{dotted(path)}`, or set it to false"
            reporter.warning(path, message, hint, reason="not_served")
    for index, test in enumerate(config.tests):
        _warn_of_test(("tests", index), test, reporter)


def _not_served(config: KindlmConfig) -> tuple[tuple[Path, bool, str], ...]:
    """Return what the format has and nothing serves yet: key, whether it is on, what is missing."""
    compliance = config.compliance is not None and config.compliance.enabled
    return (
        (("upload", "enabled"), config.upload.enabled, "Nothing is uploaded yet"),
        (("compliance", "enabled"), compliance, "No compliance report is written yet"),
        (
            ("record", "redactPii"),
            config.record.redact_pii,
            "Personal data is not redacted yet: texts are recorded as they are",
        ),
    )


def _warn_of_test(path: Path, test: TestConfig, reporter: Reporter) -> None:
    if not _expects_anything(test.expect):
        reporter.warning(
            (*path, "expect"),
            f'The test "{test.name}" expects nothing: it passes as soon as the model answers',
            "Add an expectation, such as `output.contains`",
            reason="expects_nothing",
        )
    output = test.expect.output
    if output is not None and output.format == "text" and output.schema_file is not None:
        reporter.warning(
            (*path, "expect", "output", "schemaFile"),
            "schemaFile is not used with format text",
            "Add `format: json`",
            reason="unused",
        )
    if test.models == []:
        reporter.warning(
            (*path, "models"),
            f'The test "{test.name}" runs on no model',
            "Remove `models` to run it on all of them, or use `skip: true`",
            reason="no_target",
        )
    _warn_of_values(path, test, reporter)
    _warn_of_tools(path, test, reporter)


def _expects_anything(expect: ExpectConfig) -> bool:
    output, guardrails = expect.output, expect.guardrails
    pii = guardrails.pii if guardrails else None
    keywords = guardrails.keywords if guardrails else None
    return bool(
        (output and (output.format == "json" or output.contains or output.not_contains))
        or (output and output.max_length is not None)
        or (pii and pii.enabled)
        or (keywords and (keywords.deny or keywords.allow))
        or expect.judge
        or expect.tool_calls
        or (expect.baseline and expect.baseline.drift)
    )


def _warn_of_values(path: Path, test: TestConfig, reporter: Reporter) -> None:
    for name, value in test.vars.items():
        deferred = [item for item in names_in(value) if is_deferred(item)]
        if deferred:
            reporter.warning(
                (*path, "vars", name),
                f"{{{{{deferred[0]}}}}} in a variable stays as it is: values are not expanded",
                "Put it into the prompt instead",
                reason="not_expanded",
            )


def _warn_of_tools(path: Path, test: TestConfig, reporter: Reporter) -> None:
    names = [tool.name for tool in test.tools]
    for index, call in enumerate(test.expect.tool_calls):
        if call.tool not in names:
            reporter.warning(
                (*path, "expect", "toolCalls", index, "tool"),
                f'The test "{test.name}" has no tool "{call.tool}": the model is not told of it',
                hint_for(call.tool, names, "Its tools"),
                reason="unknown_tool",
                value=call.tool,
            )
