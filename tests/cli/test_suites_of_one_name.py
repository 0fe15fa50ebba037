"""Several files with suites of one name: of different projects, or together one of one project.

A `kindlm.yaml` has the name of its folder, so this happens wherever folders have one name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from suites import greeting_suite

KINDS = pytest.mark.parametrize(
    "files",
    [
        {"one": ("a", "greets"), "two": ("b", "greets")},
        {"one": ("a", "greets"), "two": ("a", "smiles")},
    ],
    ids=["two projects", "one project"],
)


def write(here: Path, files: dict[str, tuple[str, str]], repeat: int = 1) -> None:
    for folder, (project, test) in files.items():
        path = here / folder / "agents" / "kindlm.yaml"
        path.parent.mkdir(parents=True)
        path.write_text(greeting_suite(project, test, repeat), encoding="utf-8")


def begin(history: Any, make: Any, files: dict[str, tuple[str, str]], repeats: list[int]) -> Any:
    writer = history.run("aaaa2222", planned=sum(repeats))
    for (folder, (project, test)), repeat in zip(files.items(), repeats, strict=True):
        path = f"{folder}/agents/kindlm.yaml"
        tests = [make.planned(test, repeat=repeat)]
        writer.suite("agents", project=project, path=path, tests=tests)
    return writer


@KINDS
def test_a_run_is_rescored_with_the_repeats_of_each_suite(
    kindlm: Any, history: Any, make: Any, here: Path, files: dict[str, tuple[str, str]]
) -> None:
    write(here, files)
    (_, first), (_, second) = files.values()
    writer = begin(history, make, files, [3, 1])
    for repeat, said in enumerate(["Hi.", "Hi.", "Bye."], start=1):
        checked = make.passed() if said == "Hi." else make.failed()
        writer.execution(first, repeat=repeat, output=said, assertions=(checked,))
    writer.execution(second, suite=1, output="Hi.", assertions=(make.passed(),))
    assert not writer.finish().passed
    rescored = kindlm("rescore", "--db", history.path)
    assert rescored.code == 1
    assert "3 of 4 executions passed" in " ".join(rescored.out.split())


@KINDS
def test_a_killed_run_stays_incomplete_where_another_suite_has_ended(
    kindlm: Any, history: Any, make: Any, here: Path, files: dict[str, tuple[str, str]]
) -> None:
    write(here, files)
    (_, first), (_, second) = files.values()
    writer = begin(history, make, files, [1, 1])
    writer.execution(first, output=None, finished=False)
    writer.execution(second, suite=1, output="Hi.", assertions=(make.passed(),))
    writer.leave()
    rescored = kindlm("rescore", "aaaa2222", "--db", history.path)
    assert rescored.code == 1
    assert "1 of its 2 executions did not finish" in " ".join(rescored.err.split())


SCRIPTED = """
kindlm: 1
project: shop
providers: { fake: { type: scripted, replies: [{ text: TEXT }] } }
models: [{ id: m, provider: fake, model: x }]
prompts: { ask: { user: Hello! } }
tests: [{ name: TEST, prompt: ask, repeat: 2, expect: { output: { contains: [Hi] } } }]
"""


def test_repeats_are_added_to_a_test_of_one_of_the_files(kindlm: Any, here: Path) -> None:
    for folder in ("one", "two"):
        (here / folder / "agents").mkdir(parents=True)

    def run(**texts: str) -> int:
        for folder, text in texts.items():
            suite = SCRIPTED.replace("TEXT", text).replace("TEST", f"greets {folder}")
            (here / folder / "agents" / "kindlm.yaml").write_text(suite, encoding="utf-8")
        return int(kindlm("test", "one", "two").code)

    assert run(one="Hi.", two="Hi.") == 0
    assert run(one="Bye.", two="Hi.") == 1
    settled = kindlm("settle", "--max-runs", "2")
    assert "2 repeats added" in " ".join(settled.out.split())
    assert "greets one · m  2/2 before, 0/2 after + 0/2 added" in settled.err


def test_what_did_not_pass_runs_again_and_not_its_namesake(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    files = {"one": ("a", "greets"), "two": ("b", "greets")}
    write(here, files)
    writer = begin(history, make, files, [1, 1])
    writer.execution("greets", output="Bye.", assertions=(make.failed(),))
    writer.execution("greets", suite=1, output="Hi.", assertions=(make.passed(),))
    writer.finish()
    planned = kindlm("test", "one", "two", "--failed", "--dry-run", "--db", history.path)
    assert "1 execution" in " ".join(planned.out.split()), planned


def test_a_baseline_is_one_of_the_whole_suite(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    files = {"one": ("a", "greets"), "two": ("a", "smiles")}
    writer = begin(history, make, files, [1, 1])
    writer.execution("greets", output="Hi.", assertions=(make.passed(),))
    writer.execution("smiles", suite=1, output="Hi.", assertions=(make.passed(),))
    writer.finish()
    assert kindlm("baseline", "set", "--db", history.path).err.count("is now the baseline") == 1
    compared = kindlm("baseline", "compare", "--db", history.path)
    assert compared.code == 0
    assert "2 as before" in compared.out
