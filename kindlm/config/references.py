"""What a configuration refers to must be there: names, files, variables; and names are unique.

These checks read the plain values of the file, not the validated models: so they find what they
can in a file that has schema errors too, and all errors are told at once. What has the wrong type
is passed over here; the schema has reported it.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

from kindlm.config.agent_rules import check_agents
from kindlm.config.compliance import check_template
from kindlm.config.conversation_rules import check_conversations
from kindlm.config.diagnostics import Reporter
from kindlm.config.file_references import check_files
from kindlm.config.files import ReferencedFiles
from kindlm.config.places import Path
from kindlm.config.provider_rules import PROVIDER_TYPES, check_providers
from kindlm.config.raw import Raw, expectations, items, section
from kindlm.config.templates import check_templates
from kindlm.config.tool_rules import check_tools
from kindlm.config.variables import check_rows
from kindlm.errors import ErrorCode
from kindlm.suggestions import hint_for


def check_references(raw: Raw, reporter: Reporter, files: ReferencedFiles) -> None:
    """Report everything that refers to nothing, and every name that is there twice."""
    check_providers(raw, reporter)
    check_agents(raw, reporter)
    _check_models(raw, reporter)
    _check_unique(items(raw, "tests"), "name", "test", reporter)
    _check_unique(items(raw, "serve"), "name", "service", reporter)
    judge = section(raw, "defaults").get("judgeModel")
    _check_judge(("defaults", "judgeModel"), judge, raw, reporter)
    for path, test in items(raw, "tests"):
        _check_test(path, test, raw, reporter)
    check_files(raw, reporter, files)
    check_tools(raw, reporter, files)
    check_rows(raw, reporter, files)
    check_conversations(raw, reporter, files)
    check_templates(raw, reporter, files)
    check_template(raw, reporter, files)


def _ids(raw: Raw, *keys: str) -> list[str]:
    """Return the ids of models, of agents, or of both."""
    entries = (item for key in keys for _, item in items(raw, key))
    return [item["id"] for item in entries if isinstance(item.get("id"), str)]


def _check_unique(
    entries: Iterator[tuple[Path, Raw]], key: str, what: str, reporter: Reporter
) -> None:
    seen: dict[str, Path] = {}
    for path, item in entries:
        name = item.get(key)
        if not isinstance(name, str):
            continue
        if name in seen:
            kind = "agent" if path[0] == "agents" else what
            line = reporter.where((*seen[name], key)).line
            reporter.error(
                (*path, key),
                f'The {kind} "{name}" is there twice: first on line {line}',
                "Give each one a name of its own",
                reason=f"duplicate_{what}",
                value=name,
            )
        seen.setdefault(name, path)


def _check_models(raw: Raw, reporter: Reporter) -> None:
    _check_unique(chain(items(raw, "models"), items(raw, "agents")), "id", "model", reporter)
    providers = section(raw, "providers")
    models = list(items(raw, "models"))
    for path, model in models:
        provider = model.get("provider")
        if not isinstance(provider, str) or not provider or not providers or provider in providers:
            continue
        known = provider in PROVIDER_TYPES
        reporter.error(
            (*path, "provider"),
            f'The model "{model.get("id")}" uses the provider "{provider}", '
            + ("which is not configured" if known else "which is unknown"),
            hint_for(provider, providers, "Configured providers"),
            reason="provider_not_configured",
            code=(ErrorCode.CONFIG_VALIDATION_ERROR if known else ErrorCode.PROVIDER_NOT_FOUND),
            value=provider,
            available=list(providers),
        )
    if (
        models
        and all(model.get("role") == "judge" for _, model in models)
        and not raw.get("agents")
        and any("command" not in test for _, test in items(raw, "tests"))
    ):
        reporter.error(
            ("models",),
            "All models only judge: there is none to test",
            "Add a model without `role: judge`",
            reason="no_target",
        )


def _check_test(path: Path, test: Raw, raw: Raw, reporter: Reporter) -> None:
    prompt, prompts = test.get("prompt"), section(raw, "prompts")
    if isinstance(prompt, str) and prompt and prompts and prompt not in prompts:
        reporter.error(
            (*path, "prompt"),
            f'The test "{test.get("name")}" refers to the prompt "{prompt}", which is not defined',
            hint_for(prompt, prompts, "Defined prompts"),
            reason="unknown_prompt",
            value=prompt,
            available=list(prompts),
        )
    _check_test_models(path, test, raw, reporter)
    for place, expect in expectations(test):
        for inner, criterion in items(expect, "judge"):
            where = (*path, *place, *inner, "model")
            _check_judge(where, criterion.get("model"), raw, reporter)
    tools = (((*path, *place), tool) for place, tool in items(test, "tools"))
    _check_unique(tools, "name", "tool", reporter)


def _check_test_models(path: Path, test: Raw, raw: Raw, reporter: Reporter) -> None:
    chosen = test.get("models")
    judges = [item.get("id") for _, item in items(raw, "models") if item.get("role") == "judge"]
    ids = _ids(raw, "models", "agents")
    known = "Ids of configured models" + (" and agents" if raw.get("agents") else "")
    seen: set[str] = set()
    for index, model in enumerate(chosen if isinstance(chosen, list) else ()):
        place = (*path, "models", index)
        if not isinstance(model, str):
            continue
        if model not in ids:
            _report_unknown_model(place, "unknown_model", model, ids, known, reporter)
        elif model in judges:
            reporter.error(
                place,
                f'The model "{model}" only judges',
                "Remove it here, or its `role: judge`",
                reason="judge_as_target",
                value=model,
            )
        elif model in seen:
            reporter.error(
                place,
                f'The model "{model}" is there twice',
                "Use `repeat` to run a test several times",
                reason="duplicate_target",
                value=model,
            )
        seen.add(model)


def _check_judge(path: Path, model: object, raw: Raw, reporter: Reporter) -> None:
    ids = _ids(raw, "models")
    if isinstance(model, str) and model not in ids:
        known = "Ids of configured models"
        _report_unknown_model(path, "unknown_judge_model", model, ids, known, reporter)


def _report_unknown_model(
    path: Path, reason: str, model: str, ids: list[str], known: str, reporter: Reporter
) -> None:
    if not ids:
        # That no model is there has been reported already.
        return
    reporter.error(
        path,
        f'The model "{model}" is not configured',
        hint_for(model, ids, known),
        reason=reason,
        value=model,
        available=ids,
    )
