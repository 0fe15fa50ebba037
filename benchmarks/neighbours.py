"""Checks whether kindlm can be installed together with agent frameworks.

`python -m benchmarks.neighbours [PACKAGE …]` lets pip resolve each package with kindlm and alone,
without installing anything. It exits with 1 if pip finds no solution, or if a package with kindlm
is more than one major version behind. It needs a package index, and takes minutes.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Final

_PACKAGES: Final = (
    "langchain-openai",
    "crewai",
    "litellm",
    "llama-index-llms-openai",
    "pydantic-ai",
    "openai-agents",
    "dspy",
    "deepeval",
    "google-adk",
    "autogen-ext[openai]",
)
_PROJECT: Final = Path(__file__).parents[1]


def main(packages: list[str]) -> int:
    """Resolve each package and print a line about it; return the exit code."""
    faults = 0
    for package in packages or _PACKAGES:
        alone, beside = _resolve(package), _resolve(package, str(_PROJECT))
        name = package.partition("[")[0]
        if isinstance(beside, str) or isinstance(alone, str):
            reason = beside if isinstance(beside, str) else alone
            print(f"✗ {package}: {reason}")
            faults += 1
            continue
        lost = _major(alone[name]) - _major(beside[name])
        faults += lost > 1
        sdks = ", ".join(f"{sdk} {beside[sdk]}" for sdk in ("openai", "anthropic"))
        verdict = "✗" if lost > 1 else "✓"
        print(f"{verdict} {package} {beside[name]}, alone {alone[name]}; with {sdks}", flush=True)
    return int(faults > 0)


def _resolve(*requirements: str) -> dict[str, str] | str:
    """Return the versions that pip would install in an empty environment, or why it cannot."""
    with tempfile.TemporaryDirectory() as folder:
        report = Path(folder, "report.json")
        pip = [sys.executable, "-m", "pip", "install", "--dry-run", "--ignore-installed", "-q"]
        done = subprocess.run(
            [*pip, "--report", str(report), *requirements],
            check=False,
            capture_output=True,
            text=True,
        )
        if done.returncode != 0:
            return " ".join(done.stderr.split())[-400:]
        found = json.loads(report.read_text(encoding="utf-8"))["install"]
    return {
        item["metadata"]["name"].lower().replace("_", "-"): item["metadata"]["version"]
        for item in found
    }


def _major(version: str) -> int:
    return int(version.partition(".")[0])


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
