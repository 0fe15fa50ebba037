"""Warns of settings that have no effect, check nothing, or are probably unintended."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from kindlm.checks.base import CheckSection, ExpectSection
from kindlm.checks.limits import beyond
from kindlm.config.compile import targets_of
from kindlm.config.diagnostics import Reporter
from kindlm.config.entries import guarded
from kindlm.config.expect import KEYS_OF_TOOLS, expect_sections, warn_of_text, warn_of_texts
from kindlm.config.files import ReferencedFiles
from kindlm.config.schema import GatesConfig, KindlmConfig
from kindlm.config.templates import warn_of_commands, warn_of_placeholders
from kindlm.config.test_schema import TestConfig
from kindlm.document import Path, Raw, items
from kindlm.pricing import matching_name
from kindlm.secrecy import entry_secrets
from kindlm.suggestions import hint_for


def warn(
    config: KindlmConfig,
    raw: Raw,
    reporter: Reporter,
    files: ReferencedFiles,
    environ: Mapping[str, str],
) -> None:
    """Report all warnings.

    `raw` is the file that `config` was made of. Adapters look for the addresses of agents in
    `environ`, too.
    """
    for path, entry in (*items(raw, "agents"), *items(raw, "serve")):
        warn_of_credentials(path, entry, reporter, "{{env.NAME}}")
    _warn_of_requests(config, reporter, environ)
    _warn_of_tests(config, reporter)
    for path, test in items(raw, "tests"):
        warn_of_texts(path, test, reporter)
    for index, pattern in enumerate(config.upload.redact_patterns):
        warn_of_text(("upload", "redactPatterns", index), pattern, reporter)
    warn_of_commands(config, reporter)
    if not reporter.has_errors:
        # With a wrong reference, the entry that it means would seem unused.
        _warn_of_unused(config, reporter)
    rates: list[tuple[Path, float | None]] = [(("defaults", "passRate"), config.defaults.pass_rate)]
    rates += [(("tests", at, "passRate"), it.pass_rate) for at, it in enumerate(config.tests)]
    found = [(path, "it allows all repeats to fail") for path, rate in rates if rate == 0]
    found += _vain_gates(config)
    for place, part in _written(config):
        for at, message, hint in part.unused():
            reporter.warning((*place, *at), message, hint, reason="unused")
        reasons = part.never_fails(config.defaults.execution_timeout_ms)
        found += [((*place, *inner), reason) for inner, reason in reasons]
    for path, why in found:
        message = f"This check can never fail: {why}"
        reporter.warning(path, message, "Change or remove it", reason="never_fails")
    warn_of_placeholders(config, raw, reporter, files)


def warn_of_credentials(path: Path, entry: Raw, reporter: Reporter, variable: str) -> None:
    """Warn of credentials in the headers and variables of an agent or a service.

    `variable` is how the file writes a variable.
    """
    for key in ("headers", "env"):
        if any(True for _ in entry_secrets({key: entry.get(key)})):
            message = "This is a credential in plain text: anyone with this file can use it"
            hint = f"Put it in an environment variable or in .env, and write {variable}"
            reporter.warning((*path, key), message, hint, reason="credential")


def _warn_of_tests(config: KindlmConfig, reporter: Reporter) -> None:
    models = {model.id for model in config.models}
    for index, test in enumerate(config.tests):
        path: Path = ("tests", index)
        has_checks = any(expect.expects_anything for _, expect in expect_sections(path, test))
        if not (test.skip or has_checks):
            message = f'The test "{test.name}" has no checks: it passes on any answer'
            hint = "Add a check, such as `output.contains`"
            reporter.warning((*path, "expect"), message, hint, reason="expects_nothing")
        targets = () if test.command is not None else targets_of(test, config)
        agents = [agent for agent in config.agents if agent.id in targets]
        if not models.isdisjoint(targets):
            _warn_of_tools(path, test, reporter)
        else:
            # Some agents get the results of their tools from kindlm.
            answers = any(it.options is None or it.options.asks_for_tools for it in agents)
            keys = ["max_turns"] + ([] if answers else ["tools", "strict_tools"])
            keys += ["models"] if test.command is not None else []
            for key in test.model_fields_set.intersection(keys):
                alias = TestConfig.model_fields[key].alias or key
                message = f'`{alias}` has no effect in the test "{test.name}": it runs on no model'
                reporter.warning((*path, alias), message, f"Remove `{alias}`", reason="unused")
        prompts = [config.prompts[name] for name in test.all_prompts if name in config.prompts]
        if any(prompt.system or prompt.system_file for prompt in prompts):
            for agent in agents:
                if agent.options is not None and not agent.options.sends_system_text():
                    message = f'The agent "{agent.id}" does not get the system text of the prompt'
                    hint = agent.options.system_text_hint
                    reporter.warning((*path, "prompt"), message, hint, reason="unused")


def _warn_of_tools(path: Path, test: TestConfig, reporter: Reporter) -> None:
    of_servers = test.server_tools
    names = [tool.name for tool in test.simulated]
    names += [name for tools in of_servers for name in tools.only or ()]
    # The tools that a server lists are known only when it runs.
    are_known = all(tools.only for tools in of_servers)
    for place, expect in expect_sections(path, test):
        named = (
            ((*place, *inner, key), getattr(part, key, None))
            for inner, part in expect.written()
            for key in KEYS_OF_TOOLS
        )
        for at, name in named:
            if name is not None and name not in names and are_known:
                message = f'The test "{test.name}" has no tool "{name}", so the model does not get'
                message += " it"
                hint = hint_for(name, names, "Its tools")
                reporter.warning(at, message, hint, reason="unknown_tool", value=name)


def _vain_gates(config: KindlmConfig) -> Iterator[tuple[Path, str]]:
    """Yield the gates that can never fail, with the reason."""
    gates, timeout = config.gates, config.defaults.execution_timeout_ms
    checked = {
        found.kind
        for test in config.tests
        for _, expect in expect_sections((), test)
        for _, found in expect.expectations(lambda _: None)
    }
    has_keywords = not checked.isdisjoint({"keywords_deny", "keywords_allow"})
    is_late = gates.latency_max_ms is not None and gates.latency_max_ms >= timeout
    why = {
        "schema_failures_max": ("schema" not in checked, "no test has a `schemaFile`"),
        "pii_failures_max": ("pii" not in checked, "no test checks `guardrails.pii`"),
        "keyword_failures_max": (not has_keywords, "no test checks `guardrails.keywords`"),
        "pass_rate_min": (gates.pass_rate_min == 0, "it allows all tests to fail"),
        "judge_avg_min": (gates.judge_avg_min == 0, "no score is below 0"),
        "drift_score_max": (gates.drift_score_max == 1, "no drift exceeds 1"),
        "latency_max_ms": (is_late, beyond(timeout)),
    }
    for name in sorted(why.keys() & gates.model_fields_set):
        is_vain, reason = why[name]
        if is_vain:
            yield ("gates", GatesConfig.model_fields[name].alias or name), reason


def _written(config: KindlmConfig) -> Iterator[tuple[Path, ExpectSection]]:
    """Yield the sections below `expect` of all tests, with their places."""
    for index, test in enumerate(config.tests):
        for path, expect in expect_sections(("tests", index), test):
            yield from (((*path, *place), part) for place, part in expect.written())


def _warn_of_unused(config: KindlmConfig, reporter: Reporter) -> None:
    # The places of checks that ask a judge, each with its model if one is named.
    judged = [
        (place, part.judge_model or config.defaults.judge_model)
        for place, part in _written(config)
        if isinstance(part, CheckSection) and part.asks_judge
    ]
    undecided = [place for place, model in judged if model is None]
    if undecided:
        first = config.models[0].id
        judge = next((model.id for model in config.models if model.role == "judge"), first)
        message = f'No judge is configured: the first model, "{first}", is the judge'
        hint = f"Set the judge: `defaults: {{ judgeModel: {judge} }}`"
        reporter.warning(undecided[0], message, hint, reason="default_judge", value=first)
    tests = [test for test in config.tests if test.command is None]
    targets = {target for test in tests for target in targets_of(test, config)}
    targets |= {tools.server for test in tests for tools in test.server_tools}
    targets |= {model for _, model in judged if model is not None}
    if undecided:
        targets.add(config.models[0].id)
    # Which models a check of a package asks is unknown before it runs.
    if any(expect.added for test in config.tests for _, expect in expect_sections((), test)):
        targets |= {model.id for model in config.models if model.role == "judge"}
        targets.add(config.defaults.judge_model or "")
    prompts = {name for test in config.tests for name in test.all_prompts}
    entries: dict[Path, str] = {("models", at): it.id for at, it in enumerate(config.models)}
    entries |= {("agents", at): it.id for at, it in enumerate(config.agents)}
    unused = {path: f'"{name}"' for path, name in entries.items() if name not in targets}
    named = [name for name in config.prompts if name not in prompts]
    unused |= {("prompts", name): f'the prompt "{name}"' for name in named}
    for path, what in unused.items():
        message = f"No test uses {what}"
        reporter.warning(path, message, "Remove it, or use it", reason="unused")
    models = {model.id: model.model for model in config.models}
    priced = {matching_name(model, config.prices) for model in models.values()}
    for name in config.prices:
        if name in models and name not in priced:
            message = f'"{name}" is an id, and prices are found by the name of the model'
            hint = f'Write "{models[name]}"'
            reporter.warning(("prices", name), message, hint, reason="unused")


def credentials_in(raw: Any) -> set[str]:
    """Return the credentials in a file that may have errors: in `headers` and `env` of entries."""
    entries = (entry for key in ("agents", "serve") for _, entry in items(raw, key))
    return {secret for entry in entries for secret in entry_secrets(entry)}


def _warn_of_requests(config: KindlmConfig, reporter: Reporter, environ: Mapping[str, str]) -> None:
    """Report parameters and prefills that are not sent, and the advice of adapters."""
    for index, agent in enumerate(config.agents):
        if agent.options is None:
            continue
        path: Path = ("agents", index, "adapter")
        kind, what = type(agent.options), "cannot give advice"
        with guarded(kind, agent.adapter, path, what, reporter):
            for reason, message, advised in agent.options.advice(agent.endpoint or "", environ):
                reporter.warning(path, message, advised, reason=reason)
    takes_prefill = set[str]()
    for index, model in enumerate(config.models):
        provider = config.providers.get(model.provider)
        options = None if provider is None else provider.options
        if model.params.seed is not None and options is not None and not options.takes_seed:
            place: Path = ("models", index, "params", "seed")
            message = f'The provider "{model.provider}" takes no seed, so it is not sent'
            hint = "Remove it; use `temperature: 0` and `repeat` against chance"
            reporter.warning(place, message, hint, reason="not_sent")
        if model.role == "judge" and "params" in model.model_fields_set:
            message = f'`params` has no effect for the judge "{model.id}": kindlm chooses them'
            reporter.warning(("models", index, "params"), message, "Remove it", reason="unused")
        if provider is not None and (options is None or options.takes_prefill):
            takes_prefill.add(model.id)
    prefilled = [name for name, prompt in config.prompts.items() if prompt.assistant]
    for name in prefilled:
        asked = [test for test in config.tests if name in test.all_prompts and not test.command]
        targets = (target for test in asked for target in targets_of(test, config))
        left_out = next((target for target in targets if target not in takes_prefill), None)
        if left_out is not None:
            message = f'The prefill of the prompt "{name}" is not sent to "{left_out}": only models'
            message += " of Anthropic and Ollama go on from it"
            hint = "Name such models in the `models` of its tests, or remove it"
            reporter.warning(("prompts", name, "assistant"), message, hint, reason="not_sent")
