"""Renders a template and facts to Markdown, with all text in the facts escaped.

A template of a user is rendered in a process of its own that cannot take more than it may. The
sandbox of Jinja keeps a template from reaching what it should not, not from counting to a billion.
The limits of the operating system do, whatever the template finds to do.

A fact says how it is to be escaped wherever Jinja asks for that (`__html__`), and what is put in
the place of an expression is escaped if it was not before. So Markdown of others stays text also
where a template joins it with what is safe.

`ARTICLES` says what testing can show of Regulation (EU) 2024/1689, the Artificial Intelligence Act.
For each article that testing speaks to: the gates whose results are evidence for it, and what of it
no test can show. Articles 9 to 15 state the requirements for high-risk systems, Article 72 the
monitoring after they are placed on the market; Annex IV lists what their documentation holds.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import asdict
from functools import lru_cache
from typing import Any

from jinja2 import StrictUndefined, Template
from jinja2.sandbox import ImmutableSandboxedEnvironment
from markupsafe import Markup

from kindlm.dataclass import dataclass
from kindlm.reports.untrusted import cell, plain, visible


@dataclass(frozen=True, slots=True)
class Article:
    """An article: what the results below address, and what they do not."""

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
        "Whether answers held personal data or forbidden words while the tests ran.",
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
        "What people said of recorded conversations, and where they disagree with the verdict.",
        "The measures by which people can oversee and stop the system in use.",
    ),
    Article(
        15,
        "Accuracy, robustness and cybersecurity",
        "Annex IV, points 2 (g) and 4",
        "Pass rates with their intervals over repeats, form of the output, drift, judged quality.",
        "Attacks, faults and inputs that no test of this suite holds; security of the operation.",
        (
            "schemaFailuresMax",
            "judgeAvgMin",
            "driftScoreMax",
            "deterministicMaxFlakyRate",
            "probabilisticAvgMin",
            "latencyMaxMs",
        ),
    ),
    Article(
        72,
        "Post-market monitoring",
        "Annex IV, points 6 and 9",
        "What changed between recorded runs, and how this one compares with the accepted one.",
        "Monitoring of the system in use, and the plan for it.",
    ),
)


def _written(value: Any) -> Any:
    return Markup(value) if isinstance(value, str) else value  # noqa: S704


_EXACT = re.compile(r"sha256:[0-9a-f]{64}|[0-9TZ:. +-]+", re.ASCII)
_BREAKS = re.compile(r"\s*\n\s*")
_NO_WIDTH = "\u200b"

_NOT_SAFE = ("tojson", "urlize", "xmlattr")
"""What these filters return counts as safe, and is so in HTML alone."""

_NOT_THE_SAME = ("random",)
"""Filters that give another document each time."""


def render(source: str, facts: Mapping[str, Any]) -> str:
    """Render a template with facts; the same facts give the same text.

    Args:
        source: The template; it has access to the facts only.
        facts: JSON values.

    Raises:
        Exception: Any exception of the template's expressions.
    """
    values = {name: _fact(value) for name, value in facts.items()}
    # The texts of articles are those above, and need no escaping. Each has the results of the
    # gates that are evidence for it.
    values["articles"] = [
        {
            **{name: _written(value) for name, value in asdict(article).items()},
            "gates": [gate for gate in facts["gates"] if gate["name"] in article.gates],
        }
        for article in ARTICLES
    ]
    text = _compiled(source).render(values)
    # kindlm inserts zero-width spaces, so that mentions and addresses are not linked.
    return _NO_WIDTH.join(map(visible, text.split(_NO_WIDTH)))


@lru_cache(maxsize=4)
def _compiled(source: str) -> Template:
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
    for name in (*_NOT_SAFE, *_NOT_THE_SAME):
        del environment.filters[name]
    del environment.globals["lipsum"]  # random words
    return environment.from_string(source)


class _Text(str):
    """A text of the facts; it is escaped for Markdown when joined with safe text."""

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
    """Escape a text for Markdown; safe text stays unchanged."""
    if isinstance(value, Markup | int | float):
        return value
    # A text of several lines becomes one sentence here.
    text = _BREAKS.sub(" ", _text(value).strip())
    # Hashes and times need no escaping, and must stay easy to copy.
    return Markup(text if _EXACT.fullmatch(text) else plain(text, len(text)))  # noqa: S704


def _code(value: object) -> Markup:
    text = _text(value)
    return Markup(cell(text, len(text)))  # noqa: S704


def _when(at: str) -> Markup:
    """Return a time of the log, UTC in ISO 8601, in a readable form."""
    shown = at[:19].replace("T", " ")
    return Markup(f"{shown if _EXACT.fullmatch(shown) else plain(shown)} UTC")  # noqa: S704


def _text(value: object) -> str:
    text = "" if value is None else str(value)
    if value is not None and not isinstance(value, int | float | Collection):
        # Functions and the like: Python shows their address in memory, which differs each time.
        raise TypeError(f"a value of type {type(value).__name__} cannot be shown")
    return visible(text)


_CPU_S = 10
_MEMORY_MIB = 512
"""What the process may have, also for itself, where the operating system can limit that."""

_OUTPUT_MIB = 16
"""How long the document may be: the process that wants it has no limit of memory."""

_DEADLINE_S = 60.0
"""Then the process is ended, however little time of a processor it had."""

# `-P` and this order: nothing in the current folder is imported.
_START = (
    "import sys, json; sys.path[:] = json.loads(sys.argv.pop()); "
    "from kindlm.reports.compliance.rendering import main; main()"
)
_NEEDED = ("LD_LIBRARY_PATH", "DYLD_LIBRARY_PATH", "SYSTEMROOT")
"""What Python may need of our environment to start; no key of a provider is among it."""

_MIB = 1024 * 1024

_PLACE = re.compile(r" at 0x[0-9a-fA-F]+")

_LONGEST_REASON = 10_000
"""Characters: a template can name what does not exist, at any length."""


class TemplateFailedError(Exception):
    """A template cannot be rendered; the text says why."""


def render_apart(
    source: str,
    facts: Mapping[str, Any],
    *,
    cpu_s: int = _CPU_S,
    memory_mib: int = _MEMORY_MIB,
    output_mib: int = _OUTPUT_MIB,
    deadline_s: float = _DEADLINE_S,
) -> str:
    """Render a template with facts, which are JSON values, in a process of its own.

    Raises:
        TemplateFailedError: It is invalid, or exceeds its limits.
    """
    try:
        done = subprocess.run(
            [sys.executable, "-Pc", _START, json.dumps(sys.path)],
            input=json.dumps([cpu_s, memory_mib, output_mib, source, facts]).encode(),
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=deadline_s,
            env=environ_of_templates(),
            # Ctrl-C is for kindlm; this process ends with it, or by its limits.
            start_new_session=True,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise TemplateFailedError(f"it takes more than {deadline_s} seconds") from None
    except OSError as error:
        reason = f"no process for it could be started: {error.strerror}"
        raise TemplateFailedError(reason) from error
    # Not every system has the signal: its number is looked up by its name.
    if -done.returncode == getattr(signal, "SIGXCPU", None):
        raise TemplateFailedError(f"it takes more than {cpu_s} seconds of processor time")
    if done.returncode:
        reason = "its process ended before it was done, as it does without memory"
        raise TemplateFailedError(reason)
    text, problem = json.loads(done.stdout)
    if problem is not None:
        raise TemplateFailedError(problem)
    return str(text)


def environ_of_templates() -> dict[str, str]:
    """Return the environment that templates are rendered in."""
    kept = {name: os.environ[name] for name in _NEEDED if name in os.environ}
    # The order of a set must not change.
    return {**kept, "PYTHONHASHSEED": "0", "PYTHONUTF8": "1"}


def main() -> None:
    """Read limits, template and facts, write `[text, null]` or `[null, error]`, as JSON.

    The time limit ends the process without an answer.
    """
    answer: list[str | None]
    cpu_s, memory_mib, output_mib, source, facts = json.load(sys.stdin)
    _limit(cpu_s, memory_mib * _MIB)
    try:
        text = render(source, facts)
        answer = [text, None]
        if len(text.encode("utf-8", "replace")) > output_mib * _MIB:
            answer = [None, f"what it writes is longer than {output_mib} MiB"]
    except MemoryError:
        answer = [None, f"it takes more than {memory_mib} MiB of memory"]
    except RecursionError:
        answer = [None, "it calls itself too often, or nests too deeply"]
    except Exception as error:  # noqa: BLE001 - expressions of a template raise anything
        # Memory addresses differ each time.
        reason = _PLACE.sub("", str(error)[:_LONGEST_REASON]).rstrip(".")
        answer = [None, reason or type(error).__name__]
    json.dump(answer, sys.stdout)


def _limit(cpu_s: int, memory: int) -> None:
    """Set the limits of the operating system; where it has none, the deadline replaces them."""
    try:
        import resource
    except ImportError:
        return
    wanted = {
        resource.RLIMIT_CPU: (cpu_s, cpu_s + 1),
        resource.RLIMIT_AS: (memory, memory),
        resource.RLIMIT_CORE: (0, 0),
    }
    for limit, values in wanted.items():
        # A process may not be allowed to ask for more, and some systems have no such limit.
        with suppress(OSError, ValueError):
            resource.setrlimit(limit, values)
