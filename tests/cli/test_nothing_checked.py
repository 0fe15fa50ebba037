"""A test without checks passes: every report of its run says that nothing was checked."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from xml.etree import ElementTree as ET

import pytest

from kindlm.outcome import NOTHING_CHECKED

SUITE = """\
kindlm: 1
project: shop
suite: { name: orders }
providers: { scripted: { replies: [delivered] } }
models: [{ id: fake, provider: scripted, model: fake-1 }]
prompts: { ask: { user: hello } }
tests:
  - { name: checked, prompt: ask, expect: { output: { contains: delivered } } }
  - { name: empty, prompt: ask, expect: %s }
"""
SAID = "nothing was checked in 1 execution"


@pytest.mark.parametrize(
    "expect",
    [
        "{}",
        "{ output: { contains: '' } }",
        "{ toolCalls: [] }",
        "{ guardrails: { keywords: { allow: [''] } } }",
    ],
)
def test_every_report_says_it(
    kindlm: Any, here: Path, monkeypatch: pytest.MonkeyPatch, expect: str
) -> None:
    (here / "kindlm.yaml").write_text(SUITE % expect, encoding="utf-8")
    monkeypatch.setenv("GITHUB_ACTIONS", "true")

    outcome = kindlm("test", "-q", "--reporter", "json", "--reporter", "junit=j.xml")

    assert outcome.code == 0
    checked, empty = json.loads(outcome.out)["tests"]
    assert checked["executions"][0]["warnings"] == []
    assert empty["executions"][0]["warnings"] == [NOTHING_CHECKED]
    assert f"::warning file=kindlm.yaml,line=9,title=empty checks nothing::{NOTHING_CHECKED}" in (
        outcome.err
    )
    cases = {case.get("name"): case for case in ET.parse(here / "j.xml").iter("testcase")}
    assert NOTHING_CHECKED in (cases["empty"].findtext("system-out") or "")
    assert len(cases["checked"]) == 0
    for form in ("terminal", "markdown", "html"):
        shown = kindlm("report", "--format", form).out
        assert SAID in " ".join(shown.split())


def test_it_is_said_of_a_rescored_run_only_if_it_is_so_there(kindlm: Any, here: Path) -> None:
    (here / "kindlm.yaml").write_text(SUITE % "{}", encoding="utf-8")
    kindlm("test")
    assert SAID in " ".join(kindlm("rescore").out.split())

    (here / "kindlm.yaml").write_text(SUITE % "{ output: { contains: deliver } }", "utf-8")

    rescored = kindlm("rescore")
    assert rescored.code == 0
    assert "othing was checked" not in rescored.out


def test_strict_refuses_tests_and_checks_that_never_fail(kindlm: Any, here: Path) -> None:
    for expect, why in (("{}", "has no checks"), ("{ output: { regex: '.*' } }", "never fail")):
        (here / "kindlm.yaml").write_text(SUITE % expect, encoding="utf-8")
        for command in (("validate",), ("test", "--dry-run")):
            assert kindlm(*command).code == 0
            refused = kindlm(*command, "--strict")
            assert refused.code == 1
            assert why in refused.out + refused.err
