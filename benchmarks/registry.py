"""All benchmarks in the order of the table; docs/contributing/performance.md explains them."""

from __future__ import annotations

from benchmarks.comparison import comparison
from benchmarks.diff import diff
from benchmarks.figures import Benchmark
from benchmarks.fleet import fleet
from benchmarks.gateway import gateway
from benchmarks.history import history
from benchmarks.recorder import recorder
from benchmarks.scenarios import scenarios
from benchmarks.server import server
from benchmarks.startup import startup
from benchmarks.store import store
from benchmarks.suites import efficiency, overhead, scale, storage

BENCHMARKS = (
    Benchmark("overhead", overhead),
    Benchmark("efficiency", efficiency),
    Benchmark("scale", scale),
    Benchmark("scenarios", scenarios),
    Benchmark("startup", startup),
    Benchmark("storage", storage),
    Benchmark("recorder", recorder),
    Benchmark("store", store),
    Benchmark("history", history),
    Benchmark("diff", diff),
    Benchmark("server", server),
    Benchmark("gateway", gateway),
    Benchmark("fleet", fleet),
    Benchmark("comparison", comparison),
)
