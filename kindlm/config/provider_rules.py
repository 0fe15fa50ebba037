"""Which provider needs which keys: by its name, or by the wire format it says it has."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, dotted
from kindlm.config.raw import Raw, section
from kindlm.errors import ErrorCode
from kindlm.suggestions import hint_for

PROVIDER_TYPES = ("openai", "anthropic", "ollama", "scripted")
"""Wire formats, and the names of the providers that speak them without saying so."""


def check_providers(raw: Raw, reporter: Reporter) -> None:
    """Report unknown providers, and keys that are missing or have no meaning."""
    for name, provider in section(raw, "providers").items():
        path: Path = ("providers", name)
        if not isinstance(provider, dict):
            continue
        wire = provider.get("type")
        type_ = wire or name
        if isinstance(type_, str) and type_ not in PROVIDER_TYPES and type_ in _of_packages():
            if name in PROVIDER_TYPES:
                _report_type(path, name, type_, reporter)
            continue
        if name not in PROVIDER_TYPES and wire is None:
            reporter.error(
                path,
                f'Unknown provider "{name}"',
                _provider_hint(name),
                reason="unknown_provider",
                code=ErrorCode.PROVIDER_NOT_FOUND,
                at_key=True,
                value=name,
            )
            continue
        if name in PROVIDER_TYPES and wire in PROVIDER_TYPES and wire != name:
            _report_type(path, name, wire, reporter)
        _check_provider_keys(path, name, wire or name, provider, reporter)


def _of_packages() -> Collection[str]:
    from kindlm.plugins import Provider, installed

    return installed(Provider.group)


def _report_type(path: Path, name: str, wire: str, reporter: Reporter) -> None:
    reporter.error(
        (*path, "type"),
        f'The provider "{name}" cannot have the type {wire}',
        "Give it a name of your own",
        reason="provider_type",
    )


def _provider_hint(name: str) -> str:
    hint = hint_for(name, (*PROVIDER_TYPES, *_of_packages()), "Known providers")
    return f"{hint}; for a compatible API add `type: openai` and `baseUrl`"


def _check_provider_keys(
    path: Path, name: str, wire: Any, provider: Raw, reporter: Reporter
) -> None:
    required = {
        "apiKeyEnv": name in ("openai", "anthropic"),
        "baseUrl": name not in PROVIDER_TYPES and wire in ("openai", "anthropic"),
        "replies": wire == "scripted",
    }
    for key, needed in required.items():
        if needed and key not in provider:
            reporter.error(
                (*path, key),
                f'The key "{key}" is missing in {dotted(path)}',
                f"Add `{key}:`",
                reason="schema",
            )
    if "replies" in provider and wire != "scripted":
        reporter.error(
            (*path, "replies"),
            f'{dotted(path)} is not a scripted provider, "replies" has no meaning there',
            "Add `type: scripted`, or remove the replies",
            reason="schema",
            at_key=True,
        )
