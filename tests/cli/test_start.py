"""A run imports what it uses, and nothing else."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from checked_server import LoopbackServer
from recorded_history import History

UNUSED = (
    "anthropic",
    "datasette",
    "dotenv",
    "jinja2",
    "jsonschema",
    "kindlm.agents",
    "kindlm.browse",
    "kindlm.formats.evalview",
    "kindlm.generate",
    "kindlm.history.diff",
    "kindlm.providers.preset_providers",
    "kindlm.pytest_plugin",
    "kindlm.scenarios.api",
    "kindlm.scenarios.scenario_suite",
    "kindlm.testing",
    "kindlm.user_modules",
    "numpy",
    "pytest",
    "uvicorn",
)
"""What neither run below may load, nor anything below it."""

MOST_MODULES = 300

SUITE = """
kindlm: 1
project: start
suite: {{name: start}}
providers: {{{provider}: {settings}}}
models: [{{id: model, provider: {provider}, model: gpt-4o-mini}}]
prompts: {{greeting: {{user: Hello}}}}
tests:
  - {{name: greets, prompt: greeting, expect: {{output: {{contains: [hello]}}}}}}
"""

SCRIPTED = '{replies: [{text: "hello"}]}'


def loaded_by_run(folder: Path, **variables: str) -> set[str]:
    """The modules that a run has loaded where the history is there already."""
    History(folder / ".kindlm" / "kindlm.db").close()
    script = (
        "import sys, json\n"
        "from kindlm.cli.app import run\n"
        "code = run(['test'])\n"
        "json.dump([code, sorted(sys.modules)], sys.stderr)\n"
    )
    environ = {"PATH": os.environ["PATH"], "OPENAI_API_KEY": "not-needed-here", **variables}
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=folder, capture_output=True, check=True, env=environ
    )
    code, loaded = json.loads(done.stderr.decode().splitlines()[-1])
    assert code == 0, done.stdout.decode()
    return set(loaded)


def below(loaded: set[str], unwanted: tuple[str, ...]) -> set[str]:
    return {
        module
        for module in loaded
        if any(module == name or module.startswith(f"{name}.") for name in unwanted)
    }


def test_a_scripted_run_loads_no_sdk_and_few_modules(tmp_path: Path) -> None:
    (tmp_path / "kindlm.yaml").write_text(SUITE.format(provider="scripted", settings=SCRIPTED))
    loaded = loaded_by_run(tmp_path)
    sdks = ("genai_prices", "httpx", "httpx2", "openai")
    others = ("kindlm.fleet", "kindlm.team", "rich.progress", "sqlite_utils", "urllib.request")
    assert below(loaded, UNUSED + sdks + others) == set()
    ours = {module for module in loaded if module.partition(".")[0].startswith("kindlm")}
    assert len(ours) <= MOST_MODULES


def test_a_run_on_openai_loads_its_sdk_alone_and_once(tmp_path: Path) -> None:
    with LoopbackServer({"rules": [{"reply": {"text": "hello"}}]}) as server:
        settings = f'{{apiKeyEnv: OPENAI_API_KEY, baseUrl: "{server.url}/v1"}}'
        (tmp_path / "kindlm.yaml").write_text(SUITE.format(provider="openai", settings=settings))
        asked, remembered = (
            loaded_by_run(tmp_path, XDG_CACHE_HOME=f"{tmp_path}/cache") for _ in range(2)
        )
    assert "openai" in asked
    assert below(asked, (*UNUSED, "sqlite_utils")) == set()
    assert below(remembered, (*UNUSED, "sqlite_utils", "openai")) == set()


def test_the_help_of_no_command_loads_what_only_its_work_needs(tmp_path: Path) -> None:
    script = (
        "import sys, json\n"
        "from kindlm.cli.app import COMMANDS, run\n"
        "codes = [run([*command.split(), '--help']) for command in COMMANDS]\n"
        "json.dump([max(codes), sorted(sys.modules)], sys.stderr)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tmp_path, capture_output=True, check=True
    )
    code, loaded = json.loads(done.stderr)
    assert code == 0
    work = ("kindlm.config", "kindlm.engine", "kindlm.reports.pages", "yaml")
    assert below(set(loaded), (*UNUSED, *work)) - {"kindlm.browse"} == set()
