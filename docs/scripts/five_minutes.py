"""Runs the agent and the suite of the tutorial: what its red test prints, in five-minutes.md."""

from __future__ import annotations

import io
import os
import re
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import chdir, contextmanager, redirect_stderr, redirect_stdout
from functools import cache
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import Any

PAGE = Path(__file__).parents[1] / "tutorial" / "five-minutes.md"
_BLOCK = re.compile(r"<!-- (\w+: [\w.]+) -->\n```\w+\n(.*?)```", re.DOTALL)
_HEALTHY_LINE = re.compile(r'^.*"name": "lookup_order".*\n', re.MULTILINE)
_RUN = re.compile(r"\brun ([a-z0-9]{8})\b", re.IGNORECASE)
_VARYING = {
    re.compile(r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"): "2026-11-23 09:00 UTC",
    re.compile(r"\b[\d.]+ (ms|s)\b"): "0.2 s",
}


def blocks() -> dict[str, str]:
    """Return the examples of the page by their names."""
    return dict(_BLOCK.findall(PAGE.read_text("utf-8")))


def without_lookup(code: str) -> str:
    """Return the agent of the page as the reader breaks it."""
    return _HEALTHY_LINE.sub("", code)


def refund_first(code: str) -> str:
    """Return the agent of the page so that it looks the order up once it has refunded it."""
    line = _HEALTHY_LINE.search(code)
    assert line is not None
    return without_lookup(code).replace("        ]\n", f"{line[0]}        ]\n")


@contextmanager
def serving(change: Callable[[str], str] = str) -> Iterator[str]:
    """Serve the agent of the page, or what a change makes of it; yield its address."""
    code = blocks()["http: agent.py"].partition("\nHTTPServer(")[0]
    names: dict[str, Any] = {}
    exec(change(code), names)  # noqa: S102
    names["Agent"].log_message = lambda *_: None
    server = ThreadingHTTPServer(("127.0.0.1", 0), names["Agent"])
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        server.server_close()


def _written_in(project: Path, *arguments: str) -> str:
    """Run kindlm in a folder, and return what it writes to standard output."""
    from kindlm.cli.app import run

    out = io.TextIOWrapper(io.BytesIO(), "utf-8")
    environ = dict(os.environ)
    try:
        os.environ.clear()
        os.environ["COLUMNS"] = "100"
        with chdir(project), redirect_stdout(out), redirect_stderr(io.StringIO()):
            run(arguments)
    finally:
        os.environ.clear()
        os.environ.update(environ)
    out.seek(0)
    return out.read()


@cache
def red_test() -> str:
    """Return what `kindlm test` prints once the agent of the page is broken."""
    with tempfile.TemporaryDirectory() as folder, serving(without_lookup) as address:
        suite = blocks()["http: kindlm.yaml"].replace("http://127.0.0.1:8000", address)
        project = Path(folder, "shop")
        project.mkdir()
        (project / "kindlm.yaml").write_text(suite, encoding="utf-8")
        shown = _written_in(project, "test", "--no-progress").strip()
    if found := _RUN.search(shown):
        shown = shown.replace(found[1], "k3f9x2ab")
    for varying, shown_as in _VARYING.items():
        shown = varying.sub(shown_as, shown)
    return shown
