"""`kindlm demo` tells its story from nothing but the installed package."""

from __future__ import annotations

import shlex


def test_it_shows_what_changed_and_can_be_told_again(workspace):
    del workspace.env["OPENAI_API_KEY"]
    done = workspace.run("demo")
    assert done.returncode == 0, done.stderr
    assert "- lookup_order" in done.stdout
    assert "amount  49.99 → 60.0" in done.stdout
    assert "TOOL_CALL_MISSING" in done.stdout
    assert "REGRESSED: 2 tests got worse, confirmed" in done.stdout
    (step,) = [line for line in done.stdout.splitlines() if line.startswith("Next  ")]
    command = shlex.split(step)[2:7]
    assert command[-2:] == ["--db", "kindlm-demo/.kindlm/kindlm.db"]
    assert workspace.run(*command).returncode == 0
    home, workspace.root = workspace.root, workspace.root / "kindlm-demo"
    runs = "SELECT label, passed FROM runs ORDER BY started_at"
    assert workspace.query(runs) == [("before", 1), ("after", 0)]

    # Its folder is a project like any other.
    assert workspace.run("replay", "before").returncode == 0
    workspace.root = home
    assert workspace.run("demo").returncode == 0
    mine = workspace.root / "kindlm-demo" / "agent.yaml"
    mine.write_text("extends: support\n# mine\n", encoding="utf-8")
    refused = workspace.run("demo")
    assert refused.returncode == 1
    assert "agent.yaml was edited" in refused.stderr
    assert mine.read_text("utf-8").endswith("# mine\n")
    workspace.root = home / "kindlm-demo"
    assert [run for run in workspace.query(runs) if run[0]] == [("before", 1), ("after", 0)] * 2


def test_it_leaves_a_folder_with_other_things_alone(workspace):
    mine = workspace.root / "agent.yaml"
    mine.write_text("mine", encoding="utf-8")
    done = workspace.run("demo", ".")
    assert done.returncode == 1
    assert "holds other files" in done.stderr
    assert mine.read_text("utf-8") == "mine"
    assert sorted(path.name for path in workspace.root.iterdir()) == ["agent.yaml"]
