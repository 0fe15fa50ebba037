"""Which name a slip probably means."""

from __future__ import annotations

from typing import Any

import pytest

from kindlm.suggestions import suggest


@pytest.mark.parametrize(
    ("name", "meant"),
    [
        ("promtp", "prompt"),
        ("promt", "prompt"),
        ("tset", "test"),
        ("modle", "model"),
        ("ids", "id"),
        ("Prompt", "prompt"),
        ("tool_calls", "toolCalls"),
    ],
)
def test_a_slip_means_what_it_is_close_to(name: str, meant: str) -> None:
    assert suggest(name, ["id", "test", "toolCalls", "model", "prompt"]) == meant


@pytest.mark.parametrize("name", ["", "x", "u", "if", "foo", "cats", "system", "😀"])
def test_other_names_mean_nothing(name: str) -> None:
    assert suggest(name, ["id", "user", "max", "name", "expect"]) is None


@pytest.mark.parametrize(
    ("written", "meant", "text"),
    [
        ("promtp", "prompt", "tests: [{name: a, promtp: ask, expect: {}}]"),
        ("promtps", "prompts", "promtps: {ask: {user: hi}}"),
        ("projct", "project", "projct: shop"),
    ],
)
def test_a_misspelt_key_is_one_error(load: Any, written: str, meant: str, text: str) -> None:
    sections = {
        "project": "project: shop",
        "suite": "suite: {name: a}",
        "providers": "providers: {openai: {apiKeyEnv: KEY}}",
        "models": "models: [{id: gpt, provider: openai, model: gpt-4o}]",
        "prompts": "prompts: {ask: {user: hi}}",
        "tests": "tests: [{name: a, prompt: ask, expect: {}}]",
    }
    sections[{"prompt": "tests"}.get(meant, meant)] = text
    loaded = load("kindlm: 1\n" + "\n".join(sections.values()) + "\n")
    [found] = loaded.diagnostics
    assert f'Unknown key "{written}"' in found.error.message
    assert found.error.hint == f'Did you mean "{meant}"?'
