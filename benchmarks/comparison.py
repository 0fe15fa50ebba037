"""The same calls and checks with pydantic-evals, if it is installed; it records nothing."""

from __future__ import annotations

import asyncio
import sys
import tempfile
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import kindlm, measure
from benchmarks.provider import provider
from benchmarks.workspaces import KEY, write_project

_CONCURRENCY = 32
_ROOT = str(Path(__file__).parents[1])


def comparison(sizes: Sizes) -> Iterator[Figure]:
    """Yield the time of both, in alternation; nothing without pydantic-evals."""
    if find_spec("pydantic_evals") is None:
        return
    ours, theirs = [], []
    with provider() as server, tempfile.TemporaryDirectory() as name:
        command = [sys.executable, "-m", "benchmarks.comparison", server.url, str(sizes.tests)]
        for number in range(sizes.runs):
            folder = Path(name) / str(number)
            folder.mkdir()
            write_project(folder, tests=sizes.tests, url=server.url, concurrency=_CONCURRENCY)
            ours.append(kindlm("test", folder=folder, OPENAI_API_KEY=KEY).wall_s)
            theirs.append(measure(command, folder=Path(_ROOT), OPENAI_API_KEY=KEY).wall_s)
    yield Figure(f"pydantic-evals, {sizes.tests:,} tests", theirs, "s")
    ratios = [a / b for a, b in zip(ours, theirs, strict=True)]
    yield Figure("kindlm to pydantic-evals", ratios, "×", "at most 0.51 ×")


async def _evaluate(url: str, tests: int) -> None:
    from dataclasses import dataclass

    from openai import AsyncOpenAI
    from pydantic_evals import Case, Dataset
    from pydantic_evals.evaluators import Contains, Evaluator, EvaluatorContext

    @dataclass
    class NotContains(Evaluator[str, str, None]):
        value: str

        def evaluate(self, ctx: EvaluatorContext[str, str, None]) -> bool:
            return self.value not in ctx.output.lower()

    @dataclass
    class MaxLength(Evaluator[str, str, None]):
        length: int

        def evaluate(self, ctx: EvaluatorContext[str, str, None]) -> bool:
            return len(ctx.output) <= self.length

    client = AsyncOpenAI(base_url=f"{url}/v1", max_retries=0)
    system = "You are a customer support agent for ACME Corp. Always look up the order first."

    async def ask(question: str) -> str:
        reply = await client.chat.completions.create(
            model="gpt-4o",
            temperature=0.2,
            messages=[
                {"role": "system", "content": system},
                {"role": "user", "content": question},
            ],
        )
        return reply.choices[0].message.content or ""

    cases = [Case(name=f"order {n}", inputs=f"Where is my order A{n:06}?") for n in range(tests)]
    checks = (Contains(value="shipped"), NotContains("refund"), MaxLength(500))
    dataset = Dataset(name="simple", cases=cases, evaluators=checks)
    report = await dataset.evaluate(ask, max_concurrency=_CONCURRENCY, progress=False)
    assert not report.failures
    assert len(report.cases) == tests


if __name__ == "__main__":
    asyncio.run(_evaluate(sys.argv[1], int(sys.argv[2])))
