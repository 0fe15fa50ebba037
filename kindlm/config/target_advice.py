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
                message = "This is a credential in plain text: anyone with this file can use it"
                hint = "Put it in an environment variable or in .env, and write {{env.NAME}}"
                reporter.warning((*path, key), message, hint, reason="credential")
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
            message = f"`{name}` is in `{path[-1]}`, so it is not a setting of the agent"
            hint = f"Write `{name}:` beside `{path[-1]}:`"
            reporter.warning((*path, name), message, hint, reason="misplaced")


def _warn_of_requests(config: KindlmConfig, reporter: Reporter, environ: Mapping[str, str]) -> None:
    """Report keys, seeds and prefills that are not sent, and the advice of adapters."""
    for index, agent in enumerate(config.agents):
        if agent.options is None:
            continue
        path: Path = ("agents", index, "adapter")
        try:
            for reason, message, advised in agent.options.advice(agent.endpoint or "", environ):
                reporter.warning(path, message, advised, reason=reason)
        except CRASHES as error:
            if is_own(agent.options):
                raise
            plugin = installed(Adapter.group)[str(agent.adapter)][0]
            report_faulty(path, crashed(plugin, "cannot give advice", error), reporter)
    unsent: list[tuple[Path, str, str]] = []
    for name, written in config.providers.items():
        is_keyless = written.options is not None and not written.options.takes_key
        if is_keyless and written.api_key_env is not None:
            message = f'`apiKeyEnv` has no effect: the provider "{name}" takes no key'
            unsent.append((("providers", name, "apiKeyEnv"), message, "Remove it"))
    takes_prefill = set[str]()
    for index, model in enumerate(config.models):
        provider = config.providers.get(model.provider)
        options = None if provider is None else provider.options
        if model.params.seed is not None and options is not None and not options.takes_seed:
            message = f'The model "{model.id}" is not sent the seed: the provider'
            message += f' "{model.provider}" takes none'
            hint = "Remove it; use `temperature: 0` and `repeat` against chance"
            unsent.append((("models", index, "params", "seed"), message, hint))
        if provider is not None and (options is None or options.takes_prefill):
            takes_prefill.add(model.id)
    for name, prompt in config.prompts.items():
        asked = [test for test in config.tests if name in test.all_prompts and not test.command]
        targets = dict.fromkeys(target for test in asked for target in targets_of(test, config))
        left_out = [target for target in targets if target not in takes_prefill]
        if prompt.assistant and left_out:
            who = f'"{left_out[0]}"' if len(left_out) == 1 else count(len(left_out), "target")
            message = f'The prefill of the prompt "{name}" is not sent to {who}: only models of'
            message += " Anthropic and Ollama go on from it"
            hint = "Name such models in the `models` of its tests, or remove it"
            unsent.append((("prompts", name, "assistant"), message, hint))
    for path, message, hint in unsent:
        reporter.warning(path, message, hint, reason="not_sent")


def _warn_of_addresses(config: KindlmConfig, reporter: Reporter) -> None:
    """Report agents that do not get the address of the gateway or of the receiver of spans."""
    for index, agent in enumerate(config.agents):
        if agent.adapter == "python":
            continue
        for key, what in (("gateway", "the gateway"), ("telemetry", "the receiver of spans")):
            if not getattr(agent, key):
                continue
            if getattr(agent.options, "sandbox", "local") != "local":
                message = f"{what[0].upper()}{what[1:]} cannot be reached from a sandbox of Daytona"
                hint = f"Remove `{key}`, or `sandbox`"
            elif agent.endpoint and "{{serve." not in agent.endpoint:
                message = f'The agent "{agent.id}" is not started by kindlm, so it does not get the'
                message += f" address of {what}"
                hint = "Start it with `serve`, and write {{serve.NAME.port}} into its `endpoint`"
            else:
                continue
            reporter.warning(("agents", index, key), message, hint, reason=f"unreachable_{key}")
