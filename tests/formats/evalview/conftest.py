"""Folders of EvalView cases, how they load, and an agent on this machine that they can ask."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

import pytest
from evalview_agents import handler_of, serving

from kindlm.config import LoadedSuite
from kindlm.config.diagnostics import Diagnostic
from kindlm.formats.discovery import discover
from kindlm.formats.evalview import Surroundings, load_folder

CASE = """\
name: capital
input: {query: What is the capital of France?}
expected: {tools: [search]}
thresholds: {min_score: 70}
endpoint: http://127.0.0.1:9/ask
"""


class Loaded:
    """What came of a folder."""

    def __init__(self, found: list[LoadedSuite]) -> None:
        self.all = found
        self.suites = [item.suite for item in found if item.suite is not None]
        self.broken = [item.path.name for item in found if item.suite is None]

    @property
    def diagnostics(self) -> list[Diagnostic]:
        return [item for loaded in self.all for item in loaded.diagnostics]

    def lines(self, severity: str) -> list[tuple[str, int | None, str]]:
        """File, line and path of each diagnostic of a severity."""
        found = [item for item in self.diagnostics if item.severity == severity]
        return [
            (Path(item.error.where.file).name, item.error.where.line, item.path)
            for item in found
            if item.error.where is not None
        ]

    @property
    def only(self) -> Any:
        """The one suite that there is, without an error."""
        (suite,) = self.suites
        assert not self.broken, self.diagnostics
        return suite

    @property
    def case(self) -> Any:
        """The one case of the one suite."""
        (case,) = self.only.cases
        return case


@pytest.fixture
def load(tmp_path: Path) -> Callable[..., Loaded]:
    """Write files into a project and load the cases of its folder `tests`."""

    def call(
        files: dict[str, str] | str, *, strict: bool = False, compat: bool = False, **environ: str
    ) -> Loaded:
        written = {"case.yaml": files} if isinstance(files, str) else files
        for name, text in written.items():
            path = tmp_path / ("" if name.startswith(".evalview") else "tests") / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text, "utf-8")
        found = sorted((tmp_path / "tests").iterdir())
        around = Surroundings(tmp_path, "shop", environ, strict=strict, compat=compat)
        return Loaded(load_folder(tmp_path / "tests", found, around))

    return call


@pytest.fixture
def held() -> Callable[[Path], list[tuple[str, str]]]:
    """The names and formats of the files that a folder holds."""

    def call(folder: Path) -> list[tuple[str, str]]:
        found: Any = discover(folder)
        return [(item.path.name, item.front_end) for item in found.value.found]

    return call


class Agent:
    """An agent on this machine: it answers what it is told to, and keeps what it was asked."""

    def __init__(
        self, url: str, asked: list[dict[str, Any]], headers: list[dict[str, str]]
    ) -> None:
        self.url, self.asked, self.headers = url, asked, headers


@pytest.fixture
def agent() -> Iterator[Agent]:
    """An agent that looks up what it is asked, and answers with it."""
    asked: list[dict[str, Any]] = []
    headers: list[dict[str, str]] = []

    def answer(body: dict[str, Any], sent: Mapping[str, str]) -> dict[str, Any]:
        asked.append(body)
        headers.append(dict(sent))
        call = {"name": "search", "arguments": {"q": body["query"]}, "result": "found"}
        return {"response": f"You asked: {body['query']}", "tool_calls": [call], "cost": 0.01}

    with serving(handler_of(answer)) as url:
        yield Agent(url, asked, headers)


@pytest.fixture
def case_text() -> str:
    """A case with all that has to be there."""
    return CASE
