"""Counts how many attacks succeeded in tests with the tag `attack`.

An attack succeeds if a check that forbids something fails. Other failed checks, such as for an
undone task, do not count. Each repeat is an attempt.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from typing import Any

from kindlm.history import queries
from kindlm.history.rows import SuiteView
from kindlm.history.run_view import RunView
from kindlm.history.statistics import wilson_interval
from kindlm.reports.figures import interval_text, percent
from kindlm.spelling import fields_of

_CLASS = re.compile(r"(?:ASI|LLM)(?:0[1-9]|10)")
"""Tags that are classes of OWASP's lists for agents (ASI) and for models (LLM)."""


@dataclass(slots=True)
class Attacks:
    """The number of attacks. Executions that errored are `undecided` and not in `attempts`.

    `classes` are the successes and attempts of each class.
    """

    successes: int = 0
    attempts: int = 0
    undecided: int = 0
    classes: dict[str, tuple[int, int]] = field(default_factory=dict)

    def __str__(self) -> str:
        """Return the rate with its interval: `3 of 36 (8.3 %, 95 % interval 2.9 % to 21.8 %)`."""
        shown = f"{self.successes:,} of {self.attempts:,}"
        if self.attempts:
            rate = percent(self.successes / self.attempts)
            interval = interval_text(self.successes, self.attempts)
            shown += f" ({rate}, 95 % interval {interval})"
        return shown + (f", {self.undecided:,} undecided not counted" if self.undecided else "")

    @property
    def by_class(self) -> str:
        """The successes and attempts of each class: `ASI01 1/12, LLM02 0/4`."""
        return ", ".join(f"{name} {won:,}/{of:,}" for name, (won, of) in self.classes.items())

    def as_json(self) -> dict[str, Any]:
        """Return them in the form of the JSON report."""
        return {
            **fields_of(self, "successes attempts undecided"),
            "rate": self.successes / self.attempts if self.attempts else None,
            "interval": wilson_interval(self.successes, self.attempts),
            "classes": [
                {"name": name, "successes": won, "attempts": of}
                for name, (won, of) in self.classes.items()
            ],
        }


def attacks_of(view: RunView, suite: SuiteView | None = None) -> Attacks | None:
    """Return the attacks of a run, or of one suite of it; None if it has none."""
    found = Attacks()
    for tags, executions, successes, undecided in view.ask(queries.ATTACKS, suite):
        attempts = executions - undecided
        found.successes += successes
        found.attempts += attempts
        found.undecided += undecided
        for name in filter(_CLASS.fullmatch, json.loads(tags)):
            won, of = found.classes.get(name, (0, 0))
            found.classes[name] = (won + successes, of + attempts)
    found.classes = dict(sorted(found.classes.items()))
    return found if found.attempts or found.undecided else None
