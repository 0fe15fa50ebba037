"""Warns of settings of agents, models and providers that are not sent or cannot be meant."""

from __future__ import annotations

from collections.abc import Mapping

from kindlm.config.compile import targets_of
from kindlm.config.credentials import written_in
from kindlm.config.diagnostics import Reporter
from kindlm.config.entries import report_faulty
from kindlm.config.schema import KindlmConfig
from kindlm.config.target_schema import AgentConfig
from kindlm.config.validation import keys_of
from kindlm.document import Path, Raw, items, section
from kindlm.packages import CRASHES, crashed, installed, is_own
from kindlm.plugins import Adapter
from kindlm.wording import count


def warn_of_targets(
    config: KindlmConfig, raw: Raw, reporter: Reporter, environ: Mapping[str, str]
) -> None:
    """Report what is wrong with agents, models and providers; see `advice.warn`."""
    for config_of, (path, agent) in zip(config.agents, items(raw, "agents"), strict=True):
        for key in ("headers", "env"):
            if written_in({"agents": [{key: agent.get(key)}]}):
                reporter.warning(
                    (*path, key),
                    "This is a credential in plain text: anyone with this file can use it",
                    "Put it in an environment variable or in .env, and write {{env.NAME}}",
                    reason="credential",
                )
            _warn_of_misplaced((*path, key), config_of, agent, reporter)
    _warn_of_requests(config, reporter, environ)
    _warn_of_addresses(config, reporter)


def _warn_of_misplaced(path: Path, config: AgentConfig, agent: Raw, reporter: Reporter) -> None:
    """Report headers or variables, at `path`, that have the names of the agent's own keys.

    They are indented too far. Keys of one word may be meant.
    """
    options = () if config.options is None else keys_of(type(config.options))
    for name in section(agent, str(path[-1])):
        if name in (*keys_of(AgentConfig), *options) and not name.islower():
            reporter.warning(
                (*path, name),
                f"`{name}` is in `{path[-1]}`, so it is not a setting of the agent",
                f"Write `{name}:` beside `{path[-1]}:`",
                reason="misplaced",
            )


def _warn_of_requests(config: KindlmConfig, reporter: Reporter, environ: Mapping[str, str]) -> None:
    """Report keys, seeds and prefills that are not sent, and the advice of adapters."""
    for index, agent in enumerate(config.agents):
        if agent.options is None:
            continue
        path: Path = ("agents", index, "adapter")
        try:
            for reason, message, hint in agent.options.advice(agent.endpoint or "", environ):
                reporter.warning(path, message, hint, reason=reason)
        except CRASHES as error:
            if is_own(agent.options):
                raise
            plugin = installed(Adapter.group)[str(agent.adapter)][0]
            report_faulty(path, crashed(plugin, "cannot give advice", error), reporter)
    for name, written in config.providers.items():
        is_keyless = written.options is not None and not written.options.takes_key
        if is_keyless and written.api_key_env is not None:
            reporter.warning(
                ("providers", name, "apiKeyEnv"),
                f'`apiKeyEnv` has no effect: the provider "{name}" takes no key',
                "Remove it",
                reason="not_sent",
            )
    for index, model in enumerate(config.models):
        provider = config.providers.get(model.provider)
        options = None if provider is None else provider.options
        if model.params.seed is not None and options is not None and not options.takes_seed:
            reporter.warning(
                ("models", index, "params", "seed"),
                f'The model "{model.id}" is not sent the seed: the provider "{model.provider}"'
                " takes none",
                "Remove it; use `temperature: 0` and `repeat` against chance",
                reason="not_sent",
            )
    takers = [
        model.id
        for model in config.models
        if (provider := config.providers.get(model.provider)) is not None
        and (provider.options is None or provider.options.takes_prefill)
    ]
    for name, prompt in config.prompts.items():
        if not prompt.assistant:
            continue
        left_out = [target for target in _targets_of_prompt(config, name) if target not in takers]
        if left_out:
            who = f'"{left_out[0]}"' if len(left_out) == 1 else count(len(left_out), "target")
            reporter.warning(
                ("prompts", name, "assistant"),
                f'The prefill of the prompt "{name}" is not sent to {who}: only models of Anthropic'
                " and Ollama go on from it",
                "Name such models in the `models` of its tests, or remove it",
                reason="not_sent",
            )


def _warn_of_addresses(config: KindlmConfig, reporter: Reporter) -> None:
    """Report agents that do not get the address of the gateway or of the receiver of spans."""
    for index, agent in enumerate(config.agents):
        if agent.adapter == "python":
            continue
        for key, what in (("gateway", "the gateway"), ("telemetry", "the receiver of spans")):
            if not getattr(agent, key):
                continue
            if getattr(agent.options, "sandbox", "local") != "local":
                reporter.warning(
                    ("agents", index, key),
                    f"{what[0].upper()}{what[1:]} cannot be reached from a sandbox of Daytona",
                    f"Remove `{key}`, or `sandbox`",
                    reason=f"unreachable_{key}",
                )
            elif agent.endpoint and "{{serve." not in agent.endpoint:
                reporter.warning(
                    ("agents", index, key),
                    f'The agent "{agent.id}" is not started by kindlm, so it does not get the'
                    f" address of {what}",
                    "Start it with `serve`, and write {{serve.NAME.port}} into its `endpoint`",
                    reason=f"unreachable_{key}",
                )


def _targets_of_prompt(config: KindlmConfig, prompt: str) -> list[str]:
    tests = [test for test in config.tests if prompt in test.all_prompts and not test.command]
    asked = (target for test in tests for target in targets_of(test, config))
    return list(dict.fromkeys(asked))
