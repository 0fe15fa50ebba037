"""The check, provider and adapter of docs/contributing/parts.md, each in a module of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Final, NamedTuple

import pytest

PAGE: Final = (Path(__file__).parents[2] / "docs" / "contributing" / "parts.md").read_text("utf-8")
FILES: Final = {
    "check: works": "polite.py",
    "provider: shouting": "shouting_provider.py",
    "adapter: echo": "echo_agent.py",
}
SUITE: Final = """
kindlm: 1
project: shop
suite: { name: loud }
prompts: { ask: { user: "Where is it?" } }
"""
MODEL: Final = """
providers: { loud: { type: shouting%s } }
models: [{ id: m, provider: loud, model: m }]
tests: [{ name: asks, prompt: ask, expect: { output: { contains: ["WHERE IS IT?%s"] } } }]
"""
AGENT: Final = """
agents: [{ id: a, adapter: echo%s }]
tests: [{ name: asks, prompt: ask, expect: { output: { contains: ["%s"] } } }]
"""
CHECK: Final = """
providers: { scripted: { type: scripted, replies: [{ text: "No. Thank you!" }] } }
models: [{ id: agent, provider: scripted, model: m }]
prices: { m: { input: 0, output: 0 } }
tests: [{ name: asks, prompt: ask, expect: %s }]
"""
RUN: Final = """
import contextlib, io, json, pathlib, sys
import kindlm.agents, kindlm.checks, kindlm.providers
for package in (kindlm.agents, kindlm.checks, kindlm.providers):
    package.__path__.append(sys.argv[1])
from kindlm.cli.app import run
done = []
for text, words in json.load(sys.stdin):
    pathlib.Path("kindlm.yaml").write_text(text, "utf-8")
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = run(words)
    done.append((code, out.getvalue(), err.getvalue()))
json.dump(done, sys.stdout)
"""

ANSWERING: Final = [
    MODEL % ("", "!"),
    MODEL % (", endWith: '?'", "?"),
    AGENT % ("", "Where is it?"),
    AGENT % (", times: 2", "it? Where"),
]
REFUSED: Final = [
    (MODEL % (", endWth: x", ""), 'Did you mean "endWith"?'),
    (MODEL % (", endWith: 5", ""), "providers.loud.endWith must be text"),
    (AGENT % (", times: x", ""), "agents[0].times must be a whole number"),
    (AGENT % (", time: 2", ""), 'Did you mean "times"?'),
    (AGENT.replace("echo", "ecko") % ("", ""), 'Did you mean "echo"?'),
    (MODEL.replace("shouting", "shoutin") % ("", ""), 'Did you mean "shouting"?'),
    (CHECK % "{ polite: { word: [x] } }", 'Did you mean "words"?'),
    (CHECK % "{ polit: {} }", 'Did you mean "polite"?'),
    (CHECK % "{ polite: { words: {} } }", "polite.words must be text, but is a mapping"),
]
DECIDED: Final = CHECK % "{ polite: {}, output: { contains: [thank] } }"
IMPOLITE: Final = CHECK % "{ polite: { words: [kindly] } }"
NEVER_FAILS: Final = CHECK % "{ polite: { words: ['', x] } }"

COMMANDS: Final = [
    *((text, ("test",)) for text in ANSWERING),
    *((text, ("validate",)) for text, _ in REFUSED),
    (DECIDED, ("test", "--reporter", "json")),
    (IMPOLITE, ("test", "--reporter", "sarif")),
    (NEVER_FAILS, ("validate",)),
    ("", ("schema",)),
]


class Done(NamedTuple):
    """How a command ended, and what it wrote."""

    code: int
    out: str
    err: str


Called = Callable[..., Done]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Called:
    """Return how each command ended in a process whose kindlm has the modules of the docs."""
    root = tmp_path_factory.mktemp("kinds")
    (folder := root / "more").mkdir()
    for mark, file in FILES.items():
        found = re.search(rf"<!-- {mark} -->\n```python\n(.*?)```", PAGE, re.DOTALL)
        assert found
        assert len(found[1].splitlines()) < 40
        folder.joinpath(file).write_text(found[1], "utf-8")
    asked = json.dumps([(SUITE + text, words) for text, words in COMMANDS])
    command = [sys.executable, "-c", RUN, str(folder)]
    process = subprocess.run(
        command, input=asked, cwd=root, capture_output=True, text=True, check=False
    )
    assert process.returncode == 0, process.stderr
    done: Mapping[tuple[str, tuple[str, ...]], Done] = dict(
        zip(COMMANDS, (Done(*each) for each in json.loads(process.stdout)), strict=True)
    )
    return lambda text, *words: done[text, words]


@pytest.mark.parametrize("text", ANSWERING)
def test_it_answers(called: Called, text: str) -> None:
    done = called(text, "test")
    assert done.code == 0, done


@pytest.mark.parametrize(("text", "told"), REFUSED)
def test_what_does_not_fit_is_an_error_at_its_place(called: Called, text: str, told: str) -> None:
    done = called(text, "validate")
    assert done.code == 1
    assert told in done.err
    assert f"kindlm.yaml:{10 if 'polit' in text else 7}:" in done.err, done.err


def test_a_check_decides_and_is_recorded_under_its_label(called: Called) -> None:
    done = called(DECIDED, "test", "--reporter", "json")
    assert done.code == 0, done.err
    assert "has no checks" not in done.err
    assertions = json.loads(done.out)["tests"][0]["executions"][0]["assertions"]
    assert [(each["kind"], each["label"]) for each in assertions] == [
        ("contains", "thank"),
        ("polite", "polite"),
    ]


def test_the_code_and_the_rule_of_a_check_are_in_reports(called: Called) -> None:
    done = called(IMPOLITE, "test", "--reporter", "sarif")
    assert done.code == 1, done.err
    (report,) = json.loads(done.out)["runs"]
    (result,) = report["results"]
    assert result["properties"]["failureCode"] == "IMPOLITE"
    assert "Expected one of kindly." in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 10
    rule = report["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], result["ruleId"]) == ("impolite", "impolite")


def test_a_check_says_what_never_fails(called: Called) -> None:
    done = called(NEVER_FAILS, "validate")
    assert done.code == 0, done.err
    assert "This check can never fail: every text contains the empty text" in done.err
    assert "kindlm.yaml:10:" in done.err


def test_the_schema_has_their_keys(called: Called) -> None:
    schema = json.loads(called("", "schema").out)["$defs"]
    provider, agent = (schema[name]["properties"] for name in ("ProviderConfig", "AgentConfig"))
    assert "shouting" in provider["type"]["enum"]
    assert provider["endWith"]["description"] == "What stands at the end (`shouting`)."
    meant = {"description": "How often (`echo`).", "type": "integer", "examples": [2]}
    assert agent["times"] == meant
    assert "polite" in schema["ExpectConfig"]["properties"]
    assert schema["PoliteConfig"]["properties"]["words"]["description"] == (
        "One of these must be in the output; case does not matter."
    )
