"""`kindlm tail`: a run followed from another terminal while it goes on."""

from __future__ import annotations

import signal
from collections.abc import Iterator

import pytest
from checked_server import LoopbackServer
from orders import hold, order, serve_orders, write_orders
from workspace import Workspace, interrupt


@pytest.fixture
def server() -> Iterator[LoopbackServer]:
    with serve_orders() as server:
        yield server


@pytest.mark.parametrize(
    ("number", "word"), [(signal.SIGINT, "INTERRUPTED"), (signal.SIGKILL, "KILLED")]
)
def test_lines_appear_while_the_run_goes_on_until_it_ends(
    workspace: Workspace, server: LoopbackServer, number: int, word: str
) -> None:
    tests = [order("k0"), order("k1", says="never said"), order("k2")]
    write_orders(workspace, server, tests)
    held = hold(server, "k2")
    process = workspace.start("test", "-j", "1")
    held()

    with workspace.start("tail") as tail:
        assert tail.stdout is not None
        told = [tail.stdout.readline() for _ in range(2)]
        assert tail.poll() is None, "the run goes on"
        # The second signal ends what is in flight at once; a killed process hears none.
        interrupt(process, number, twice=number == signal.SIGINT)
        rest, _ = tail.communicate(timeout=60)

    assert told[0].startswith("✓ k0 · gpt #1  1/3, ")
    assert told[1].startswith('✗ k1 · gpt #1: Expected the output to contain "never')
    assert word in rest
    assert tail.returncode == 1


def test_a_run_that_has_ended_is_reported_with_its_verdict(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, 2)
    server.use_faults([{"status": 500, "contains": "<k1>", "asks": "agent", "next": 1}])
    assert workspace.run("test", "-j", "1").returncode == 0

    told = workspace.run("tail")

    lines = told.stdout.splitlines()
    assert [line.split()[0] for line in lines] == ["✓", "↻", "✓", "PASSED:"]
    assert "k1 · gpt #1: PROVIDER_" in lines[1]
    assert told.returncode == 0


def test_a_group_is_followed_until_the_last_shard_has_ended_also_one_that_begins_later(
    workspace: Workspace, server: LoopbackServer
) -> None:
    write_orders(workspace, server, [order("k0"), order("k1"), order("k2", says="never said")])
    shard = ("--run-group", "nightly", "--shard")
    assert workspace.run("test", *shard, "1/3").returncode == 0

    with workspace.start("tail", "nightly") as tail:
        assert tail.stdout is not None
        told = [tail.stdout.readline()]
        assert workspace.run("test", *shard, "2/3").returncode == 0
        told.append(tail.stdout.readline())
        assert tail.poll() is None, "a shard is missing"
        assert workspace.run("test", *shard, "3/3").returncode == 1
        rest, notes = tail.communicate(timeout=60)

    assert [line.split("  ")[0] for line in told] == ["✓ k0 · gpt #1", "✓ k1 · gpt #1"]
    assert told[0].split("  ")[1].startswith("1/1, ")
    assert told[1].split("  ")[1].startswith("2/2, ")
    assert told[1].endswith(", shard 2/3\n")
    assert rest.startswith("✗ k2 · gpt #1: Expected the output to contain")
    assert "FAILED: 1 test failed, gate passRateMin" in rest
    assert "kindlm show nightly" in notes
    assert tail.returncode == 1
    again = workspace.run("tail", "nightly")
    assert again.returncode == 1
    assert "3/3" in again.stdout
