"""The JSON that commands print holds nothing that a terminal obeys."""

from __future__ import annotations

import json
import unicodedata
from typing import Any

TRICKS = "\x1b[31m \x7f \x85 \x9b31m \u200b\u2028\u2029\u202e\u2066\ufeff \U000e0041"


def test_no_document_of_a_command_hides_anything(kindlm: Any, history: Any, make: Any) -> None:
    for run, check in (("aaaa2222", make.passed()), ("bbbb2222", make.failed(message=TRICKS))):
        writer = history.run(run, label=TRICKS)
        writer.suite(TRICKS, tests=[make.planned(f"red{TRICKS}")])
        writer.execution(f"red{TRICKS}", output=f"{TRICKS}{run}", assertions=(check,))
        writer.finish()
    kindlm("baseline", "set", "aaaa2222", "--db", history.path)
    for command in (
        ("report", "aaaa2222"),
        ("diff", "aaaa2222", "bbbb2222"),
        ("runs",),
        ("runs", "--test", "red"),
        ("baseline", "list"),
        ("baseline", "compare", "bbbb2222"),
    ):
        told = kindlm(*command, "--format", "json", "--db", history.path)

        assert r"\u202e" in told.out, command
        assert json.loads(told.out)
        hiding = {"Cc", "Cf", "Zl", "Zp"}
        assert not [c for c in told.out if c != "\n" and unicodedata.category(c) in hiding]
