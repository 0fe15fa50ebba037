"""Warnings of what a model is not sent."""

from __future__ import annotations

from collections.abc import Mapping

from kindlm.config.diagnostics import Reporter
from kindlm.config.schema import KindlmConfig
from kindlm.config.targets import targets_of
from kindlm.plugins import Provider
from kindlm.wording import count


def warn_of_requests(config: KindlmConfig, reporter: Reporter, environ: Mapping[str, str]) -> None:
    """Report seeds and prefills that stay behind, and what adapters advise."""
    for index, agent in enumerate(config.agents):
        if agent.options is not None:
            for reason, message, hint in agent.options.advice(agent.endpoint or "", environ):
                reporter.warning(("agents", index, "adapter"), message, hint, reason=reason)
    for index, model in enumerate(config.models):
        provider = _options_of(config, model.provider)
        if model.params.seed is not None and provider is not None and not provider.takes_seed:
            reporter.warning(
                ("models", index, "params", "seed"),
                f'The model "{model.id}" is not sent the seed: Anthropic\'s API has none',
                "Remove it; `temperature: 0` and `repeat` deal with chance",
                reason="not_sent",
            )
    for name, prompt in config.prompts.items():
        if not prompt.assistant:
            continue
        left_out = [target for target in _asked(config, name) if not _takes(config, target)]
        if left_out:
            who = f'"{left_out[0]}"' if len(left_out) == 1 else count(len(left_out), "target")
            reporter.warning(
                ("prompts", name, "assistant"),
                f'The prefill of the prompt "{name}" is not sent to {who}: only models of Anthropic'
                " and Ollama go on from it",
                "Name such models in the `models` of its tests, or remove it",
                reason="not_sent",
            )


def _asked(config: KindlmConfig, prompt: str) -> list[str]:
    """Return the ids of the models and agents that are asked with a prompt, in order."""
    tests = [test for test in config.tests if test.prompt == prompt and test.command is None]
    asked = (target for test in tests for target in targets_of(test, config))
    return list(dict.fromkeys(asked))


def _takes(config: KindlmConfig, target: str) -> bool:
    names = (model.provider for model in config.models if model.id == target)
    provider = _options_of(config, next(names, ""))
    return provider is not None and provider.takes_prefill


def _options_of(config: KindlmConfig, provider: str) -> Provider | None:
    found = config.providers.get(provider)
    return None if found is None else found.options
