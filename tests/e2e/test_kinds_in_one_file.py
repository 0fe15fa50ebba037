"""The provider and the adapter of docs/how-to/extending.md: one module makes kindlm know each."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "extending.md").read_text("utf-8")
SUITE = """
kindlm: 1
project: shop
suite: { name: loud }
prompts: { ask: { user: "Where is it?" } }
"""
MODEL = """
providers: { loud: { type: shouting%s } }
models: [{ id: m, provider: loud, model: m }]
tests: [{ name: asks, prompt: ask, expect: { output: { contains: ["WHERE IS IT?%s"] } } }]
"""
AGENT = """
agents: [{ id: a, adapter: echo%s }]
tests: [{ name: asks, prompt: ask, expect: { output: { contains: ["%s"] } } }]
"""
RUN = """
import sys
import kindlm.agents, kindlm.providers
folder = sys.argv.pop(1)
kindlm.agents.__path__.append(folder)
kindlm.providers.__path__.append(folder)
from kindlm.__main__ import main
main()
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs kindlm with the modules of the docs among its own."""
    folder = tmp_path / "more"
    folder.mkdir()
    for kind, name, file in (
        ("provider", "shouting", "shouting_provider.py"),
        ("adapter", "echo", "echo_agent.py"),
    ):
        mark = rf"<!-- {kind}: {name} -->\n```python\n(.*?)```"
        found = re.search(mark, PAGE, re.DOTALL)
        assert found
        assert len(found[1].splitlines()) < 40
        folder.joinpath(file).write_text(found[1], "utf-8")

    def called(text: str, *words: str) -> subprocess.CompletedProcess[str]:
        (tmp_path / "kindlm.yaml").write_text(SUITE + text, "utf-8")
        command = [sys.executable, "-c", RUN, str(folder), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return called


@pytest.mark.parametrize(
    "text",
    [
        MODEL % ("", "!"),
        MODEL % (", endWith: '?'", "?"),
        AGENT % ("", "Where is it?"),
        AGENT % (", times: 2", "it? Where"),
    ],
)
def test_it_answers(run: Run, text: str) -> None:
    done = run(text, "test")
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (MODEL % (", endWth: x", ""), 'Did you mean "endWith"?'),
        (MODEL % (", endWith: 5", ""), "providers.loud.endWith must be a text"),
        (AGENT % (", times: x", ""), "agents[0].times must be a whole number"),
        (AGENT % (", time: 2", ""), 'Did you mean "times"?'),
        (AGENT.replace("echo", "ecko") % ("", ""), 'Did you mean "echo"?'),
        (MODEL.replace("shouting", "shoutin") % ("", ""), 'Did you mean "shouting"?'),
    ],
)
def test_what_does_not_fit_is_an_error_at_its_place(run: Run, text: str, told: str) -> None:
    done = run(text, "validate")
    assert done.returncode == 1
    assert told in done.stderr
    assert re.search(r"kindlm\.yaml:7:", done.stderr), done.stderr


def test_the_schema_has_their_keys(run: Run) -> None:
    schema = json.loads(run("", "schema").stdout)["$defs"]
    provider, agent = (schema[name]["properties"] for name in ("ProviderConfig", "AgentConfig"))
    assert "shouting" in provider["type"]["enum"]
    assert provider["endWith"]["description"] == "What stands at the end (`shouting`)."
    meant = {"description": "How often (`echo`).", "type": "integer", "examples": [2]}
    assert agent["times"] == meant
