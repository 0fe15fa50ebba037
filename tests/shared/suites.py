"""Suites that no file was read for, and one as a file."""

from __future__ import annotations

from typing import Any

from kindlm.suite import Case, Suite


def make_suite(*cases: Case, **fields: Any) -> Suite:
    """Return a suite of these cases; what matters to a test is in `fields`."""
    usual: dict[str, Any] = {
        "name": "support",
        "project": "shop",
        "front_end": "kindlm",
        "path": "kindlm.yaml",
        "config_hash": "0123456789ab",
        "config_text": "{}",
        "providers": {},
        "models": {},
        "gates": (),
    }
    return Suite(**(usual | fields), cases=cases)


def greeting_suite(project: str, test: str, repeat: int = 1, name: str | None = None) -> str:
    """Return a kindlm.yaml with one test; by default it has the name of its folder."""
    named = "" if name is None else f"suite: {{ name: {name} }}"
    return f"""
kindlm: 1
{named}
project: {project}
providers: {{ openai: {{ apiKeyEnv: OPENAI_API_KEY }} }}
models: [{{ id: gpt, provider: openai, model: gpt-4o-mini }}]
prompts: {{ hello: {{ system: You are kind., user: Hello! }} }}
tests:
  - {{ name: {test}, prompt: hello, repeat: {repeat}, expect: {{ output: {{ contains: [Hi] }} }} }}
"""
