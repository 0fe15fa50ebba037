"""`kindlm demo` tells its story from nothing but the installed package."""

from __future__ import annotations


def test_it_shows_what_changed_and_can_be_told_again(workspace):
    del workspace.env["OPENAI_API_KEY"]
    done = workspace.run("demo")
    assert done.returncode == 0, done.stderr
    assert "- lookup_order" in done.stdout
    assert "amount  49.99 → 60.0" in done.stdout
    assert "TOOL_CALL_MISSING" in done.stdout
    assert "REGRESSED: 2 tests got worse, confirmed" in done.stdout
    home, workspace.root = workspace.root, workspace.root / "kindlm-demo"
    runs = "SELECT label, passed FROM runs ORDER BY started_at"
    assert workspace.query(runs) == [("before", 1), ("after", 0)]

    agent = workspace.root / "agent.yaml"
    for times, copy in ((2, None), (3, "agent.yaml.bak"), (4, "agent.yaml.bak1")):
        mine = f"extends: support\n# {copy}\n"
        if copy is not None:
            agent.write_text(mine, encoding="utf-8")
        workspace.root = home
        done = workspace.run("demo")
        workspace.root = home / "kindlm-demo"
        assert done.returncode == 0
        # Its history is kept, and an edited agent beside the one of the story.
        assert workspace.query(runs) == [("before", 1), ("after", 0)] * times
        if copy is not None:
            assert copy in done.stdout
            assert agent.with_name(copy).read_text("utf-8") == mine
        assert len(list(agent.parent.glob("agent.yaml.bak*"))) == times - 2
    # Its folder is a project like any other.
    assert workspace.run("replay", "before").returncode == 0


def test_it_leaves_a_folder_with_other_things_alone(workspace):
    mine = workspace.root / "agent.yaml"
    mine.write_text("mine", encoding="utf-8")
    done = workspace.run("demo", ".")
    assert done.returncode == 1
    assert "holds something else" in done.stderr
    assert mine.read_text("utf-8") == "mine"
    assert sorted(path.name for path in workspace.root.iterdir()) == ["agent.yaml"]
