"""`kindlm demo` tells its story from nothing but the installed package."""

from __future__ import annotations


def test_it_shows_what_changed_in_behaviour(workspace):
    del workspace.env["OPENAI_API_KEY"]
    done = workspace.run("demo")
    assert done.returncode == 0, done.stderr
    assert "- lookup_order" in done.stdout
    assert "amount  49.99 → 60.0" in done.stdout
    assert "TOOL_CALL_MISSING" in done.stdout
    assert "REGRESSED: 2 tests got worse, confirmed" in done.stdout
    workspace.root = workspace.root / "kindlm-demo"
    verdicts = workspace.query("SELECT label, passed FROM runs ORDER BY started_at")
    assert verdicts == [("before", 1), ("after", 0)]


def test_it_can_be_told_again_and_keeps_its_history(workspace):
    assert workspace.run("demo").returncode == 0
    assert workspace.run("demo").returncode == 0
    workspace.root = workspace.root / "kindlm-demo"
    assert workspace.query("SELECT count(*) FROM runs") == [(4,)]


def test_it_leaves_a_folder_with_other_things_alone(workspace):
    mine = workspace.root / "agent.yaml"
    mine.write_text("mine", encoding="utf-8")
    done = workspace.run("demo", ".")
    assert done.returncode == 1
    assert "holds something else" in done.stderr
    assert mine.read_text("utf-8") == "mine"
    assert sorted(path.name for path in workspace.root.iterdir()) == ["agent.yaml"]


def test_an_edited_agent_is_kept_beside_the_one_of_the_story(workspace):
    assert workspace.run("demo").returncode == 0
    agent = workspace.root / "kindlm-demo" / "agent.yaml"
    for copy in ("agent.yaml.bak", "agent.yaml.bak1"):
        mine = f"extends: support\n# {copy}\n"
        agent.write_text(mine, encoding="utf-8")
        done = workspace.run("demo")
        assert copy in done.stdout
        assert agent.with_name(copy).read_text("utf-8") == mine
    workspace.run("demo")
    assert len(list(agent.parent.glob("agent.yaml.bak*"))) == 2
