"""`kindlm rescore` records by whose rules it judges EvalView cases."""

from __future__ import annotations

import json
from typing import Any


def compat_of_latest(kindlm: Any) -> str | None:
    lines = map(json.loads, kindlm("history", "export", "latest").out.splitlines())
    events = [line["event"] for line in lines if "event" in line]
    started = [event for event in events if event["type"] == "run.started"]
    compat: str | None = started[-1]["data"]["options"].get("compat")
    return compat


def test_a_rescored_run_is_rescored_by_the_same_rules_again(kindlm: Any, here: Any) -> None:
    assert kindlm("init", ".", "--template", "evalview").code == 0
    assert kindlm("test", "--compat", "evalview").code == 0
    for _ in range(2):
        assert kindlm("rescore", "latest").code == 0
        assert compat_of_latest(kindlm) == "evalview"
    assert kindlm("rescore", "latest", "--compat", "none").code == 0
    assert compat_of_latest(kindlm) is None
