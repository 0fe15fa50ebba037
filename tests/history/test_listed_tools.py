"""What the MCP servers of a suite listed when a run began, read again for runs made of it."""

from __future__ import annotations

from recorded_history import History
from suites import make_suite

from kindlm.history.recorded_attempts import listed_in
from kindlm.suite import ListedTools


def test_each_file_of_a_suite_has_the_lists_of_its_own_servers(history: History) -> None:
    writer = history.run("aaaa2222")
    for name in ("one", "two"):
        tools = [{"name": f"tool of {name}"}]
        writer.suite(path=f"{name}.yaml", servers=(ListedTools("shop", "shop 1", name, tools),))
    writer.suite(path="two.yaml", project="fair")
    writer.leave()

    def hashes(path: str, project: str = "shop") -> list[str]:
        suite = make_suite(path=path, project=project)
        return [each.hash for each in listed_in(history.reader(), "aaaa2222", suite)]

    assert hashes("one.yaml") == ["one"]
    assert hashes("two.yaml") == ["two"]
    assert hashes("moved.yaml") == ["one"]
    assert hashes("two.yaml", "fair") == []
