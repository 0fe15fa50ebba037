"""What a run was asked for is recorded, and asked for again when the run is resumed."""

from __future__ import annotations

from dataclasses import fields, replace
from pathlib import Path
from typing import Any

from suites import make_suite

from kindlm.cli.options import TestOptions
from kindlm.cli.run_options import as_recorded, make_request
from kindlm.events.run import PlannedTest, RunOptions, SuiteStarted
from kindlm.plan import Earlier
from kindlm.recording.loading import Loaded
from kindlm.recording.project import Project
from kindlm.recording.resumption import Unfinished
from kindlm.suite import Case, ModelParams, ModelTarget, Prompt

ASKED_FOR = RunOptions(
    paths=["kindlm.yaml"],
    suite="support",
    tests=["refund", "order"],
    tags=["slow", "paid"],
    models=["gpt"],
    keywords="refund and not slow",
    repeat=7,
    gate="95",
    concurrency=5,
    timeout_ms=4_000,
    failed=True,
    shard="2/3",
    max_cost_usd=0.0,
    max_rpm=30.5,
    cache=True,
    compat="evalview",
)
NOT_ASKED_FOR_AGAIN = {"fail_fast", "force_resume", "runner"}
"""The first two have to be given anew; runs that have the last cannot be resumed by kindlm."""


def test_a_resumed_run_is_asked_for_what_it_began_with(history: Any, tmp_path: Path) -> None:
    default = RunOptions()
    names = [field.name for field in fields(RunOptions)]
    left_out = {name for name in names if getattr(ASKED_FOR, name) == getattr(default, name)}
    assert left_out == NOT_ASKED_FOR_AGAIN

    (tmp_path / "kindlm.yaml").touch()
    began = SuiteStarted(
        suite="support",
        ordinal=0,
        project="shop",
        front_end="kindlm",
        path="kindlm.yaml",
        config_hash="0123456789ab",
        config="",
        gates=(),
        tests=(PlannedTest(name="refund", target="gpt", repeat=7),),
    )
    began_with = Unfinished(
        run="r",
        options=replace(ASKED_FOR, fail_fast=True, force_resume=True),
        group=None,
        planned=7,
        started={0: began},
        skipped={},
        earlier=Earlier(),
        asked={},
    )
    resumed = as_recorded(TestOptions(database=history.path), began_with, tmp_path)
    case = Case("refund-order", Prompt("Hi"), ("gpt",), tags=("slow", "paid"))
    suite = make_suite(case, models={"gpt": ModelTarget("gpt", "p", "house", ModelParams())})
    request = make_request(
        Loaded((suite,), (), (), (), (), (), ()),
        Project(tmp_path, history.path),
        resumed,
        began_with,
    )
    assert request.options == ASKED_FOR
