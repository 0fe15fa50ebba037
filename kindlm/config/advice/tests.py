"""Warnings of single tests: they expect nothing, or have what does not reach their target."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path
from kindlm.config.expect import expect_sections
from kindlm.config.schema import KindlmConfig, TestConfig
from kindlm.config.targets import runs_on_models, targets_of
from kindlm.config.tool_schema import ToolAnswerConfig, ToolConfig
from kindlm.matching import matches
from kindlm.suggestions import hint_for

# Each answer is compared with so many before it: a file may hold tens of thousands.
_COMPARED = 100
_FOR_MODELS = ("tools", "strict_tools", "max_turns")


def warn_of_tests(config: KindlmConfig, reporter: Reporter) -> None:
    """Report what is suspicious in the tests, one by one."""
    for index, test in enumerate(config.tests):
        path: Path = ("tests", index)
        if not any(expect.expects_anything for _, expect in expect_sections(path, test)):
            reporter.warning(
                (*path, "expect"),
                f'The test "{test.name}" expects nothing: it passes as soon as there is an answer',
                "Add an expectation, such as `output.contains`",
                reason="expects_nothing",
            )
        _warn_of_targets(path, test, config, reporter)
        _warn_of_system_text(path, test, config, reporter)
        for place, expect in expect_sections(path, test):
            for inner, part in expect.written():
                for advice in part.unused():
                    reporter.warning(
                        (*place, *inner, *advice.place),
                        advice.message,
                        advice.hint,
                        reason="unused",
                    )
        if runs_on_models(test, config):
            _warn_of_tools(path, test, reporter)


def _warn_of_targets(
    path: Path, test: TestConfig, config: KindlmConfig, reporter: Reporter
) -> None:
    if test.models == [] and test.command is None:
        reporter.warning(
            (*path, "models"),
            f'The test "{test.name}" runs on no model',
            "Remove `models` to run it on all of them, or use `skip: true`",
            reason="no_target",
        )
    elif not runs_on_models(test, config):
        who = "a command" if test.command is not None else "an agent"
        keys = ["max_turns"] if _has_answered_tools(test, config) else list(_FOR_MODELS)
        keys += ["models"] if test.command is not None else []
        for key in keys:
            if key in test.model_fields_set:
                alias = TestConfig.model_fields[key].alias or key
                reporter.warning(
                    (*path, alias),
                    f'`{alias}` has no effect in the test "{test.name}": it is for models, and '
                    f"this test runs on {who}",
                    f"Remove `{alias}`",
                    reason="unused",
                )


def _has_answered_tools(test: TestConfig, config: KindlmConfig) -> bool:
    """Tell whether a test has an agent among its targets whose functions the test answers."""
    targets = targets_of(test, config)
    return any(
        agent.id in targets and agent.options is not None and agent.options.asks_for_tools
        for agent in config.agents
    )


def _warn_of_system_text(
    path: Path, test: TestConfig, config: KindlmConfig, reporter: Reporter
) -> None:
    """Report a system text that an agent is not sent."""
    prompt = config.prompts.get(test.prompt or "")
    if test.command is not None or prompt is None:
        return
    if not prompt.system and prompt.system_file is None:
        return
    for agent in config.agents:
        options = agent.options
        if options is None or (test.models is not None and agent.id not in test.models):
            continue
        if not options.sends_system_text():
            reporter.warning(
                (*path, "prompt"),
                f'The agent "{agent.id}" is not sent the system text of the prompt "{test.prompt}"',
                options.system_text_hint,
                reason="unused",
            )


def _warn_of_tools(path: Path, test: TestConfig, reporter: Reporter) -> None:
    names = [tool.name for tool in test.tools]
    for place, expect in expect_sections(path, test):
        named = (
            ((*place, *inner, *key), name)
            for inner, part in expect.written()
            for key, name in part.tools()
        )
        for at, name in named:
            if name not in names:
                reporter.warning(
                    at,
                    f'The test "{test.name}" has no tool "{name}": the model is not told of it',
                    hint_for(name, names, "Its tools"),
                    reason="unknown_tool",
                    value=name,
                )
    for index, tool in enumerate(test.tools):
        _warn_of_answers((*path, "tools", index), tool, reporter)


def _warn_of_answers(path: Path, tool: ToolConfig, reporter: Reporter) -> None:
    """Report answers that no call ever gets, since one before them matches all of its calls."""
    everything = _answered_before(tool.responses, {})
    for index, answer in enumerate(tool.responses):
        if everything is not None and everything < index:
            earlier: int | None = everything
        else:
            earlier = _answered_before(tool.responses[: min(index, _COMPARED)], answer.when or {})
        if earlier is not None:
            _warn_of_unreachable((*path, "responses", index), tool, earlier, reporter)
    if everything is None:
        return
    if tool.cassette is not None:
        _warn_of_unreachable((*path, "cassette"), tool, everything, reporter)
    if "default_response" in tool.model_fields_set:
        _warn_of_unreachable((*path, "defaultResponse"), tool, everything, reporter)


def _answered_before(answers: Sequence[ToolAnswerConfig], when: Mapping[str, Any]) -> int | None:
    """Return which of the answers gets every call whose arguments match `when`."""
    for index, answer in enumerate(answers):
        # What asks for a part of `when` matches whatever has all of it.
        if not answer.when_state and matches(answer.when or {}, when):
            return index
    return None


def _warn_of_unreachable(path: Path, tool: ToolConfig, earlier: int, reporter: Reporter) -> None:
    calls = "all of its calls" if tool.responses[earlier].when else "all calls"
    reporter.warning(
        path,
        f'The tool "{tool.name}" never answers this: responses[{earlier}] matches {calls}',
        "Let that one ask for more, or put it last",
        reason="unreachable",
    )
