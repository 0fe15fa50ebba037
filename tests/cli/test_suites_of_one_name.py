"""Several files with suites of one name: of different projects, or together one of one project.

A `kindlm.yaml` has the name of its folder, so this happens wherever folders have one name.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

SUITE = """
kindlm: 1
project: PROJECT
providers:
  openai:
    apiKeyEnv: OPENAI_API_KEY
models:
  - id: gpt
    provider: openai
    model: gpt-4o-mini
prompts:
  hello:
    system: You are kind.
    user: Hello!
tests:
  - name: TEST
    prompt: hello
    repeat: REPEAT
    expect:
      output:
        contains: [Hi]
"""

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
        text = SUITE.replace("PROJECT", project).replace("TEST", test)
        path.write_text(text.replace("REPEAT", str(repeat)), encoding="utf-8")


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
    assert "1 of its 2 executions did not run to their end" in " ".join(rescored.err.split())
