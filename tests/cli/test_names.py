"""The same names for a run in every command, and the run that `kindlm diff` compares with."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest

SUITE = """
kindlm: 1
project: shop
suite: {{ name: support }}
providers: {{ fake: {{ type: scripted, replies: [{{ text: {reply} }}] }} }}
models: [{{ id: gpt, provider: fake, model: m }}]
prompts: {{ ask: {{ user: hi }} }}
tests: [{{ name: greets, prompt: ask, expect: {{ output: {{ contains: [hello] }} }} }}]
"""


def record(kindlm: Any, here: Path, reply: str, *arguments: str) -> str:
    """Record a run and return its id."""
    (here / "kindlm.yaml").write_text(SUITE.format(reply=reply), "utf-8")
    report = json.loads(kindlm("test", "-q", "--reporter", "json", *arguments).out)
    return str(report["run"]["id"])


@pytest.fixture
def runs(kindlm: Any, here: Path) -> list[str]:
    """Three runs, the first with a label, and made the baseline."""
    subprocess.run(
        "git init -q -b main . && git -c user.name=a -c user.email=a@b.c"
        " commit -q --allow-empty -m a",
        shell=True,
        cwd=here,
        check=True,
    )
    found = [record(kindlm, here, "hello", "--label", "v1")]
    found += [record(kindlm, here, reply) for reply in ("hello", "bye")]
    assert kindlm("baseline", "set", "v1").code == 0
    return found


def test_every_command_knows_names_that_stand_for_a_run(kindlm: Any, runs: list[str]) -> None:
    for name, run in (("v1", runs[0]), ("previous", runs[1])):
        assert run in kindlm("show", name).out
    # Commands all have names looked up by the same function.
    name, run = "git:main", runs[2]
    assert json.loads(kindlm("report", name, "--format", "json").out)["run"]["id"] == run
    assert f"run/{run}" in kindlm("verify", name).out
    assert f'"run/{run}"' in kindlm("export", name).out
    for words in (
        ("show", name),
        ("tail", name),
        ("review", name, "1", "pass"),
        ("baseline", "set", name),
        ("rescore", name),
        ("replay", name),
        ("purge", "--run", name, "-y"),
        ("label", name, "x"),
    ):
        outcome = kindlm(*words)
        assert run in outcome.out + outcome.err, (words, outcome)
        assert "There is no run" not in outcome.err, words


def test_diff_compares_with_the_baseline_where_one_is_set(
    kindlm: Any, here: Path, runs: list[str]
) -> None:
    def compared(*arguments: str) -> tuple[str, str]:
        outcome = kindlm("diff", "--format", "json", *arguments)
        assert ("Compared with the baseline" in outcome.err) is (not arguments)
        found = json.loads(outcome.out)
        return found["before"]["id"], found["after"]["id"]

    assert compared() == (runs[0], runs[2])
    assert compared("previous") == (runs[1], runs[2])
    # What a summary suggests is what diff does.
    assert f"kindlm diff {runs[0]} {runs[2]}" in kindlm("show").out
    assert runs[0] in kindlm("settle", "--dry-run").out + kindlm("settle", "--dry-run").err
    # The baseline itself is compared with the run before it.
    assert kindlm("baseline", "set", "latest").code == 0
    outcome = kindlm("diff", "--format", "json")
    assert json.loads(outcome.out)["before"]["id"] == runs[1]
    assert "baseline" not in outcome.err


def test_replay_takes_a_run_a_path_or_both(kindlm: Any, here: Path, runs: list[str]) -> None:
    for words in (("v1",), ("kindlm.yaml", "--from", "v1")):
        report = json.loads(kindlm("replay", *words, "-q", "--reporter", "json").out)
        assert report["run"]["sourceRun"] == runs[0], words
        # What was said then is said again, whatever the suite says now.
        assert report["summary"]["executions"]["passed"] == 1, words
    assert (
        json.loads(kindlm("replay", "kindlm.yaml", "-q", "--reporter", "json").out)["run"][
            "sourceRun"
        ]
        == runs[2]
    )
