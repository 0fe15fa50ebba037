"""Whole runs of `kindlm test` against a provider in a separate process."""

from __future__ import annotations

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from benchmarks.figures import Figure, Sizes
from benchmarks.processes import Measured, kindlm
from benchmarks.provider import Provider, provider
from benchmarks.workspaces import KEY, write_project

_LATENCY_S = 0.05
_CONCURRENCY = 32


@dataclass(frozen=True, slots=True)
class _Run:
    """A run of a suite in a new folder, and the size of its history."""

    measured: Measured
    stored_bytes: int


def _run(server: Provider, tests: int, *arguments: str) -> _Run:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        write_project(folder, tests=tests, url=server.url, concurrency=_CONCURRENCY)
        measured = kindlm("test", *arguments, folder=folder, OPENAI_API_KEY=KEY)
        return _Run(measured, (folder / ".kindlm" / "kindlm.db").stat().st_size)


@contextmanager
def _warm_provider(latency_ms: float = 0) -> Iterator[Provider]:
    """Start a provider, and fill the file cache of the system with a run that is not measured."""
    with provider(latency_ms) as server:
        _run(server, 5)
        yield server


def overhead(sizes: Sizes) -> Iterator[Figure]:
    """Yield the cost of kindlm itself: the provider answers at once."""
    few, all_ = [], []
    with _warm_provider() as server:
        for _ in range(sizes.runs):
            few.append(_run(server, sizes.few).measured)
            all_.append(_run(server, sizes.tests).measured)
    yield Figure(f"wall, {sizes.few:,} tests", [run.wall_s for run in few], "s")
    yield Figure(f"wall, {sizes.tests:,} tests", [run.wall_s for run in all_], "s")
    yield Figure(f"CPU, {sizes.few:,} tests", [run.cpu_s for run in few], "s")
    yield Figure(f"CPU, {sizes.tests:,} tests", [run.cpu_s for run in all_], "s")
    further = sizes.tests - sizes.few
    pairs = list(zip(few, all_, strict=True))
    walls = [(many.wall_s - one.wall_s) * 1_000 / further for one, many in pairs]
    yield Figure("wall per further test", walls, "ms", "at most 0.9 ms, then 0.6 ms")
    cpus = [(many.cpu_s - one.cpu_s) * 1_000 / further for one, many in pairs]
    yield Figure("CPU per further test", cpus, "ms")
    served = server.use.cpu_s * 1_000 / server.use.calls
    yield Figure("CPU of the provider per call", [served], "ms")


def efficiency(sizes: Sizes) -> Iterator[Figure]:
    """Yield the share of time in which a run waits for a provider that takes 50 ms."""
    with _warm_provider(_LATENCY_S * 1_000) as server:
        walls = [_run(server, sizes.tests).measured.wall_s for _ in range(sizes.runs)]
    ideal_s = sizes.tests / _CONCURRENCY * _LATENCY_S
    yield Figure(f"wall, {sizes.tests:,} tests", walls, "s")
    shares = [100 * ideal_s / wall for wall in walls]
    yield Figure(f"of the ideal {ideal_s:.2f} s", shares, "%", "at least 75 %")


def scale(sizes: Sizes) -> Iterator[Figure]:
    """Yield the cost of a test in a large run compared with a small one, and the memory."""
    few, one, many = [], [], []
    with _warm_provider() as server:
        for _ in range(sizes.long_runs):
            few.append(_run(server, sizes.few).measured)
            one.append(_run(server, sizes.tests).measured)
            many.append(_run(server, sizes.many).measured)
    yield Figure(f"wall, {sizes.many:,} tests", [run.wall_s for run in many], "s")
    growth = [
        ((c.wall_s - b.wall_s) / (sizes.many - sizes.tests))
        / ((b.wall_s - a.wall_s) / (sizes.tests - sizes.few))
        for a, b, c in zip(few, one, many, strict=True)
    ]
    further = f"a further test up to {sizes.many:,} to one up to {sizes.tests:,}"
    yield Figure(further, growth, "×", "at most 1.1 ×")
    peaks = [run.peak_bytes for run in one]
    yield Figure(f"peak memory, {sizes.tests:,} tests", peaks, "bytes")
    peaks = [run.peak_bytes for run in many]
    yield Figure(f"peak memory, {sizes.many:,} tests", peaks, "bytes", "at most 130 MB")


def storage(sizes: Sizes) -> Iterator[Figure]:
    """Yield the stored bytes of a simple test with its transcript, and of a further repeat."""
    repeats = max(sizes.tests // sizes.few, 2)
    with _warm_provider() as server:
        few = [_run(server, sizes.few) for _ in range(sizes.long_runs)]
        all_ = [_run(server, sizes.tests) for _ in range(sizes.long_runs)]
        again = [_run(server, sizes.few, "--runs", str(repeats)) for _ in range(sizes.long_runs)]
    further = sizes.tests - sizes.few
    kept = [(b.stored_bytes - a.stored_bytes) / further for a, b in zip(few, all_, strict=True)]
    yield Figure("stored, each further test", kept, "bytes", "at most 4.5 kB")
    further = sizes.few * (repeats - 1)
    kept = [(b.stored_bytes - a.stored_bytes) / further for a, b in zip(few, again, strict=True)]
    yield Figure("stored, each further repeat", kept, "bytes", "at most 3.5 kB")
    written = [run.measured.written_bytes / run.stored_bytes for run in all_]
    if any(written):
        name = "written to disk, write-ahead log included, to stored"
        yield Figure(name, written, "×", "at most 2 × and the log")
