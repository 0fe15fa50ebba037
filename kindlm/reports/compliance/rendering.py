"""Renders a template with facts to Markdown. All text in the facts is escaped.

A user's template is rendered in its own process: Jinja's sandbox restricts what it can access, and
limits of the operating system restrict its time and memory.

Text in the facts escapes itself for Markdown (`__html__`) when a template joins it with safe text,
and the result of any other expression is escaped when it is inserted.

`ARTICLES` are those of Regulation (EU) 2024/1689, the Artificial Intelligence Act, on which tests
give evidence. Articles 9 to 15 are the requirements for high-risk systems, Article 72 is their
monitoring on the market, and Annex IV lists the content of their documentation.
"""

from __future__ import annotations

import json
import os
import re
import resource
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from typing import Any, NamedTuple

from jinja2 import StrictUndefined
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from kindlm.reports.untrusted import code, plain, visible


class Article(NamedTuple):
    """An article: what test results show of it, what they do not, and the gates that judge it."""

    number: int
    title: str
    annex: str
    shown: str
    not_shown: str
    gates: tuple[str, ...] = ()


ARTICLES = (
    Article(
        9,
        "Risk management system",
        "Annex IV, point 5",
        "Testing against metrics and thresholds that were defined before (paragraphs 6 to 8).",
        "Which risks there are, how they were identified and estimated, and who accepted them.",
        ("passRateMin",),
    ),
    Article(
        10,
        "Data and data governance",
        "Annex IV, point 2 (d)",
        "Whether answers contained personal data or forbidden words while the tests ran.",
        "The data that the model was trained, validated and tested with by its provider.",
        ("piiFailuresMax", "keywordFailuresMax"),
    ),
    Article(
        11,
        "Technical documentation",
        "Annex IV, points 1 and 2 (g)",
        "The test procedures, metrics, logs and reports that point 2 (g) asks for.",
        "The other points of Annex IV: this report is a part of the documentation, not the whole.",
    ),
    Article(
        12,
        "Record-keeping",
        "Annex IV, point 2 (g)",
        "Every model call, tool step and result is in a log that can be verified.",
        "The log that the system itself has to keep while it is in use.",
    ),
    Article(
        13,
        "Transparency and provision of information to deployers",
        "Annex IV, points 1 (h) and 3",
        "The level of accuracy on these tests, and the circumstances in which it was not reached.",
        "The instructions for use and whether deployers understand them.",
    ),
    Article(
        14,
        "Human oversight",
        "Annex IV, point 2 (e)",
        "Human reviews of recorded conversations, and where they disagree with the verdict.",
        "The measures by which people can oversee and stop the system in use.",
    ),
    Article(
        15,
        "Accuracy, robustness and cybersecurity",
        "Annex IV, points 2 (g) and 4",
        "Pass rates with their intervals over repeats, form of the output, drift, judged quality.",
        "Attacks, faults and inputs that the tests do not contain; security of the operation.",
        ("schemaFailuresMax", "judgeAvgMin", "driftScoreMax", "latencyMaxMs"),
    ),
    Article(
        72,
        "Post-market monitoring",
        "Annex IV, points 6 and 9",
        "What changed between recorded runs, and how this one compares with the accepted one.",
        "Monitoring of the system in use, and the plan for it.",
    ),
)


_EXACT = re.compile(r"sha256:[0-9a-f]{64}|[0-9TZ:. +-]+", re.ASCII)
_BREAKS = re.compile(r"\s*\n\s*")
_NO_WIDTH = "\u200b"

_REFUSED = ("tojson", "urlize", "xmlattr", "random")
"""Filters whose result counts as safe but is only so in HTML, or differs each time."""


def render(source: str, facts: Mapping[str, Any]) -> str:
    """Render a template with facts, which are JSON values; the same facts give the same text.

    Raises:
        Exception: Any exception of the template's expressions.
    """
    articles = [
        {
            **article._asdict(),
            "gates": [_fact(gate) for gate in facts["gates"] if gate["name"] in article.gates],
        }
        for article in ARTICLES
    ]
    environment = ImmutableSandboxedEnvironment(
        undefined=StrictUndefined,
        autoescape=True,
        finalize=_markdown,
        trim_blocks=True,
        lstrip_blocks=True,
        keep_trailing_newline=True,
    )
    escaping = dict.fromkeys(("md", "e", "escape", "forceescape"), _markdown)
    environment.filters.update(escaping, code=_code, when=_when)
    for name in _REFUSED:
        del environment.filters[name]
    del environment.globals["lipsum"]  # random words
    text = environment.from_string(source).render({**_fact(facts), "articles": articles})
    # `visible` would write out the zero-width spaces that keep mentions from becoming links.
    return _NO_WIDTH.join(map(visible, text.split(_NO_WIDTH)))


class _Text(str):
    """Text of the facts, which is escaped for Markdown when joined with safe text."""

    __slots__ = ()

    def __html__(self) -> str:
        return str(_markdown(str(self)))


def _fact(value: Any) -> Any:
    match value:
        case str():
            return _Text(value)
        case list() | tuple():
            return [_fact(item) for item in value]
        case Mapping():
            return {name: _fact(item) for name, item in value.items()}
        case _:
            return value


def _markdown(value: object) -> object:
    """Return a value on one line, escaped for Markdown; safe text unchanged."""
    if isinstance(value, Markup | int | float):
        return value
    text = _BREAKS.sub(" ", _text(value).strip())
    # Hashes and times need no escaping and stay easy to copy.
    return Markup(text if _EXACT.fullmatch(text) else plain(text, len(text)))  # noqa: S704


def _code(value: object) -> Markup:
    text = _text(value)
    # In a table, a bar would end the cell even in code.
    escape = plain if "|" in text else code
    return Markup(escape(text, len(text)))  # noqa: S704


def _when(at: str) -> Markup:
    """Return a recorded time, UTC in ISO 8601, as `2026-01-31 14:05:09 UTC`."""
    shown = at[:19].replace("T", " ")
    return Markup(f"{shown if _EXACT.fullmatch(shown) else plain(shown)} UTC")  # noqa: S704


def _text(value: object) -> str:
    if value is not None and not isinstance(value, int | float | Collection):
        # Python shows functions with their address in memory, which differs each time.
        raise TypeError(f"a value of type {type(value).__name__} cannot be shown")
    return visible("" if value is None else str(value))


_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH")
"""Variables that Python may need to start; none of them is a provider's key."""

_LONGEST_REASON = 1_000


class TemplateFailedError(Exception):
    """A template cannot be rendered; the text says why."""


def render_apart(
    source: str,
    facts: Mapping[str, Any],
    *,
    cpu_s: int = 10,
    memory_mib: int = 512,
    deadline_s: float = 60.0,
) -> str:
    """Render a template with facts in a separate process, which is killed at the deadline.

    The system limits its processor time and, except on macOS, its memory.

    Raises:
        TemplateFailedError: The template is invalid, or exceeds its limits.
    """
    limits = f"{cpu_s} s of processor time, {deadline_s:g} s in all or {memory_mib} MiB of memory"
    exceeded = TemplateFailedError(f"it takes more than {limits}")
    try:
        done = subprocess.run(
            # With `-P`, nothing is imported from the current folder.
            [sys.executable, "-P", "-m", __name__],
            input=json.dumps([cpu_s, memory_mib, source, facts]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            env=environ_of_templates(),
            # Ctrl-C is only for kindlm.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise exceeded from None
    if done.returncode:
        raise exceeded
    text, problem = json.loads(done.stdout)
    if problem is not None:
        raise TemplateFailedError(problem)
    return str(text)


def environ_of_templates() -> dict[str, str]:
    """Return the environment of the rendering process."""
    kept = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    # The fixed seed keeps the order of sets.
    fixed = {"PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}
    return {**kept, **fixed, "PYTHONPATH": os.pathsep.join(sys.path)}


def main() -> None:
    """Read limits, template and facts as JSON; write `[text, null]` or `[null, error]`.

    A process that exceeds its limits ends without output.
    """
    cpu_s, memory_mib, source, facts = json.load(sys.stdin)
    limits = {
        resource.RLIMIT_CPU: cpu_s,
        resource.RLIMIT_AS: memory_mib * 1024 * 1024,
        resource.RLIMIT_CORE: 0,
    }
    for limit, value in limits.items():
        # macOS lacks a limit, and a lower one may apply already.
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, (value, value))
    answer: list[str | None]
    try:
        answer = [render(source, facts), None]
    except MemoryError:
        sys.exit(1)
    except Exception as error:  # noqa: BLE001 - expressions of a template raise anything
        answer = [None, str(error)[:_LONGEST_REASON].rstrip(".") or type(error).__name__]
    json.dump(answer, sys.stdout)


if __name__ == "__main__":
    main()
