"""A file with two scenarios, and what `kindlm test` tells of the files of a project."""

from __future__ import annotations

import pytest

from kindlm.cli.app import run

ONE = """from kindlm import Trial, scenario

@scenario("Refund flow", tags={"money"})
async def test_refund(t: Trial) -> None:
    t.check(await t.agent.send("refund")).contains("refund")

@scenario("Something else")
async def test_other(t: Trial) -> None:
    t.check(await t.agent.send("other")).contains("other")
"""


def told_by_test(capsys: pytest.CaptureFixture[str], *options: str) -> tuple[int, str]:
    """Run `kindlm test tests`, and return its exit code and all that it tells."""
    code = run(["test", "tests", *options])
    shown = capsys.readouterr()
    return code, " ".join((shown.out + shown.err).split())
