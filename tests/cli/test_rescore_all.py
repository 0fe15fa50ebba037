"""`kindlm rescore --all`: its tally counts the runs that were recorded, and no others."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from suites import greeting_suite


def record(history: Any, make: Any, run: str, test: str = "greets") -> None:
    writer = history.run(run)
    writer.suite(tests=[make.planned(test)])
    writer.execution(test, assertions=(make.passed(),))
    writer.finish()


def test_runs_that_were_refused_are_named_and_not_counted(
    kindlm: Any, history: Any, make: Any, here: Path
) -> None:
    record(history, make, "aaaa2222", "gone")
    record(history, make, "bbbb3333", "gone too")
    suite = greeting_suite("shop", "greets", name="support")
    (here / "kindlm.yaml").write_text(suite, encoding="utf-8")
    rescored = ("rescore", "--all", "--db", history.path)
    refused = kindlm(*rescored)
    assert refused.code == 1
    assert refused.out == "0 runs rescored: 0 pass now. Not rescored: aaaa2222, bbbb3333.\n"
    record(history, make, "cccc4444")
    some = kindlm(*rescored)
    assert some.code == 1
    assert some.out.startswith("cccc4444 → ")
    assert some.out.endswith("\n1 run rescored: 1 pass now. Not rescored: aaaa2222, bbbb3333.\n")
    only = kindlm(*rescored, "--since", "2999-01-01")
    assert (only.code, only.out) == (1, "")
