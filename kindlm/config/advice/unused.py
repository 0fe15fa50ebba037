"""Warnings of what is defined and used nowhere, and of who judges when nobody is named."""

from __future__ import annotations

from collections.abc import Iterator

from kindlm.checks.base import CheckSection
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path
from kindlm.config.expect import expect_sections
from kindlm.config.schema import KindlmConfig
from kindlm.config.targets import targets_of


def warn_of_unused(config: KindlmConfig, reporter: Reporter) -> None:
    """Report prompts, models, agents and providers that nothing refers to."""
    judged = list(_judged(config))
    _warn_of_default_judge(config, [path for path, model in judged if model is None], reporter)
    prompts = {test.prompt for test in config.tests}
    for name in config.prompts:
        if name not in prompts:
            _unused(("prompts", name), f'No test uses the prompt "{name}"', reporter)
    tests = [test for test in config.tests if test.command is None]
    targets = {target for test in tests for target in targets_of(test, config)}
    targets |= {model for _, model in judged if model is not None}
    if any(model is None for _, model in judged) and config.models:
        targets.add(config.defaults.judge_model or config.models[0].id)
    for index, model in enumerate(config.models):
        if model.id not in targets:
            what = "judges" if model.role == "judge" else "runs"
            message = f'No test {what} on the model "{model.id}"'
            if model.role == "judge":
                message = f'The model "{model.id}" is there to judge, and no test asks it'
            _unused(("models", index), message, reporter)
    for index, agent in enumerate(config.agents):
        if agent.id not in targets:
            _unused(("agents", index), f'No test runs on the agent "{agent.id}"', reporter)
    _warn_of_providers(config, reporter)


def _judged(config: KindlmConfig) -> Iterator[tuple[Path, str | None]]:
    """Yield the places where a model judges, and the model if one is named."""
    default = config.defaults.judge_model
    for index, test in enumerate(config.tests):
        for path, expect in expect_sections(("tests", index), test):
            for place, part in expect.written():
                if isinstance(part, CheckSection) and part.asks_judge:
                    yield (*path, *place), part.judge_model or default


def _warn_of_default_judge(config: KindlmConfig, undecided: list[Path], reporter: Reporter) -> None:
    if not undecided:
        return
    first = config.models[0].id
    judge = next((model.id for model in config.models if model.role == "judge"), first)
    reporter.warning(
        undecided[0],
        f'No judge is configured: the first model, "{first}", judges',
        f"Say who judges: `defaults: {{ judgeModel: {judge} }}`",
        reason="default_judge",
        value=first,
    )


def _warn_of_providers(config: KindlmConfig, reporter: Reporter) -> None:
    if _embeds(config):
        # Texts are embedded by a provider that need not have a model of its own.
        return
    used = {model.provider for model in config.models}
    for name in config.providers:
        if name not in used:
            _unused(("providers", name), f'No model uses the provider "{name}"', reporter)


def _embeds(config: KindlmConfig) -> bool:
    return any(
        isinstance(part, CheckSection) and part.embeds
        for index, test in enumerate(config.tests)
        for _, expect in expect_sections(("tests", index), test)
        for _, part in expect.written()
    )


def _unused(path: Path, message: str, reporter: Reporter) -> None:
    reporter.warning(path, message, "Remove it, or use it", reason="unused")
