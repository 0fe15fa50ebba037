"""The cost of a call in a scenario, compared with one in a suite, with as many checks."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import kindlm
from benchmarks.provider import provider
from benchmarks.workspaces import (
    KEY,
    SCENARIO_TURNS,
    write_agent_project,
    write_project,
    write_scenarios,
)

_CONCURRENCY = 32

Write = Callable[..., Path]


def scenarios(sizes: Sizes) -> Iterator[Figure]:
    """Yield the CPU time of a further call: in scenarios, and in suites on an agent and a model."""
    talking: list[float] = []
    by_agent: list[float] = []
    by_model: list[float] = []
    with provider() as server:
        _cpu_s(write_scenarios, 2, server.url)  # fills the file cache of the system
        for _ in range(sizes.runs):
            talking.append(_further(write_scenarios, sizes, server.url) / SCENARIO_TURNS)
            by_agent.append(_further(write_agent_project, sizes, server.url))
            by_model.append(_further(write_project, sizes, server.url))
    turns = f"{sizes.tests:,} × {SCENARIO_TURNS} turns"
    yield Figure(f"CPU per further call, scenarios, {turns}", talking, "ms")
    yield Figure("CPU per further call, suite on the same agent", by_agent, "ms")
    yield Figure("CPU per further call, suite on a model", by_model, "ms")
    ratios = [one / other for one, other in zip(talking, by_agent, strict=True)]
    yield Figure("scenarios to the suite on the agent", ratios, "×", "at most 1.5 ×")
    ratios = [one / other for one, other in zip(talking, by_model, strict=True)]
    yield Figure("scenarios to the suite on a model", ratios, "×", "at most 1.5 ×")


def _further(write: Write, sizes: Sizes, url: str) -> float:
    """Return the CPU milliseconds of one more test."""
    few, all_ = _cpu_s(write, sizes.few, url), _cpu_s(write, sizes.tests, url)
    return (all_ - few) * 1_000 / (sizes.tests - sizes.few)


def _cpu_s(write: Write, tests: int, url: str) -> float:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        file = write(folder, tests=tests, url=url, concurrency=_CONCURRENCY)
        return kindlm("test", str(file), folder=folder, OPENAI_API_KEY=KEY).cpu_s
