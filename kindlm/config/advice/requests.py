"""Warnings of what a model is not sent, and of an API that is no longer served."""

from __future__ import annotations

from urllib.parse import urlsplit

from kindlm.config.agent_rules import OTHER_NAMES
from kindlm.config.diagnostics import Reporter
from kindlm.config.schema import KindlmConfig
from kindlm.config.targets import targets_of
from kindlm.wording import count

_OPENAI_URL = "https://api.openai.com/v1"
_TAKES_PREFILL = frozenset({"anthropic", "ollama"})


def warn_of_requests(config: KindlmConfig, reporter: Reporter) -> None:
    """Report seeds and prefills that stay behind; what was written must not vanish unseen."""
    _warn_of_assistants(config, reporter)
    wires = {name: provider.type or name for name, provider in config.providers.items()}
    for index, model in enumerate(config.models):
        if model.params.seed is not None and wires.get(model.provider) == "anthropic":
            reporter.warning(
                ("models", index, "params", "seed"),
                f'The model "{model.id}" is not sent the seed: Anthropic\'s API has none',
                "Remove it; `temperature: 0` and `repeat` deal with chance",
                reason="not_sent",
            )
    for name, prompt in config.prompts.items():
        if not prompt.assistant:
            continue
        left_out = [target for target in _asked(config, name) if not _takes(config, wires, target)]
        if left_out:
            who = f'"{left_out[0]}"' if len(left_out) == 1 else count(len(left_out), "target")
            reporter.warning(
                ("prompts", name, "assistant"),
                f'The prefill of the prompt "{name}" is not sent to {who}: only models of Anthropic'
                " and Ollama go on from it",
                "Name such models in the `models` of its tests, or remove it",
                reason="not_sent",
            )


def _warn_of_assistants(config: KindlmConfig, reporter: Reporter) -> None:
    for index, agent in enumerate(config.agents):
        adapter = OTHER_NAMES.get(agent.adapter, agent.adapter)
        if adapter == "openai-assistants" and _is_openai(agent.endpoint or _OPENAI_URL):
            reporter.warning(
                ("agents", index, "adapter"),
                "OpenAI ended the Assistants API on 2026-08-26",
                "Name another server that speaks it as `endpoint`, or in OPENAI_BASE_URL",
                reason="ended_upstream",
            )


def _is_openai(endpoint: str) -> bool:
    try:
        return urlsplit(endpoint).hostname == urlsplit(_OPENAI_URL).hostname
    except ValueError:  # that it is no URL is said elsewhere
        return False


def _asked(config: KindlmConfig, prompt: str) -> list[str]:
    """Return the ids of the models and agents that are asked with a prompt, in order."""
    tests = [test for test in config.tests if test.prompt == prompt and test.command is None]
    asked = (target for test in tests for target in targets_of(test, config))
    return list(dict.fromkeys(asked))


def _takes(config: KindlmConfig, wires: dict[str, str], target: str) -> bool:
    provider = next((model.provider for model in config.models if model.id == target), None)
    # A scripted model reads nothing.
    return provider is not None and wires.get(provider) in {*_TAKES_PREFILL, "scripted"}
