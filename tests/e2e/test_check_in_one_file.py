"""The check of docs/how-to/extending.md: one module makes all of kindlm know it."""

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
suite: { name: courtesy }
providers: { scripted: { type: scripted, replies: [{ text: "No. Thank you!" }] } }
models: [{ id: agent, provider: scripted, model: m }]
prices: { m: { input: 0, output: 0 } }
prompts: { ask: { user: "Where is my order?" } }
tests:
"""
RUN = """
import sys
import kindlm.checks
kindlm.checks.__path__.append(sys.argv.pop(1))
from kindlm.__main__ import main
main()
"""
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(tmp_path: Path) -> Run:
    """Return a function that runs kindlm with the module of the docs among its checks."""
    found = re.search(r"<!-- check: works -->\n```python\n(.*?)```", PAGE, re.DOTALL)
    assert found
    assert len(found[1].splitlines()) < 40
    folder = tmp_path / "more_checks"
    folder.mkdir()
    folder.joinpath("polite.py").write_text(found[1], "utf-8")

    def called(*words: str, expect: str = "{ polite: {} }") -> subprocess.CompletedProcess[str]:
        test = f"  - {{ name: asks, prompt: ask, expect: {expect} }}\n"
        (tmp_path / "kindlm.yaml").write_text(SUITE + test, "utf-8")
        command = [sys.executable, "-c", RUN, str(folder), *words]
        return subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, check=False)

    return called


def test_it_decides_and_is_recorded_under_its_label(run: Run) -> None:
    expect = "{ polite: {}, output: { contains: [thank] } }"
    done = run("test", "--reporter", "json", expect=expect)
    assert done.returncode == 0, done.stderr
    assert "has no checks" not in done.stderr
    assertions = json.loads(done.stdout)["tests"][0]["executions"][0]["assertions"]
    assert [(each["kind"], each["label"]) for each in assertions] == [
        ("contains", "thank"),
        ("polite", "polite"),
    ]


def test_its_code_and_its_rule_are_in_reports(run: Run) -> None:
    done = run("test", "--reporter", "sarif", expect="{ polite: { words: [kindly] } }")
    assert done.returncode == 1, done.stderr
    (report,) = json.loads(done.stdout)["runs"]
    (result,) = report["results"]
    assert result["properties"]["failureCode"] == "IMPOLITE"
    assert "Expected one of kindly." in result["message"]["text"]
    assert result["locations"][0]["physicalLocation"]["region"]["startLine"] == 10
    rule = report["tool"]["driver"]["rules"][result["ruleIndex"]]
    assert (rule["id"], result["ruleId"]) == ("impolite", "impolite")


@pytest.mark.parametrize(
    ("expect", "told"),
    [
        ("{ polite: { word: [x] } }", 'Did you mean "words"?'),
        ("{ polit: {} }", 'Did you mean "polite"?'),
        (
            "{ polite: { words: {} } }",
            "tests[0].expect.polite.words must be a text, but is a mapping",
        ),
    ],
)
def test_what_does_not_fit_is_an_error_at_its_place(run: Run, expect: str, told: str) -> None:
    done = run("validate", expect=expect)
    assert done.returncode == 1
    assert told in done.stderr
    assert "kindlm.yaml:10:" in done.stderr


def test_it_says_what_never_fails(run: Run) -> None:
    done = run("validate", expect="{ polite: { words: ['', x] } }")
    assert done.returncode == 0, done.stderr
    assert "This check can never fail: every text holds the empty one" in done.stderr
    assert "kindlm.yaml:10:" in done.stderr


def test_the_schema_has_its_keys(run: Run) -> None:
    schema = json.loads(run("schema").stdout)
    assert [*schema["$defs"]["ExpectConfig"]["properties"]][-1] == "polite"
    section = schema["$defs"]["PoliteConfig"]
    assert section["properties"]["words"]["description"] == (
        "One of these must be in the output; case does not matter."
    )
