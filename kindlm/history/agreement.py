"""Whether judges and people agree: whom the reviews of people say one can trust.

People say of a whole execution whether it passes. Where a judge passes what something else failed,
that tells nothing of the judge: what people hold against the execution need not be what the judge
was asked. Such executions are left out of the judge's figures, whatever people say of them, and so
with a criterion.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from enum import StrEnum

from kindlm.history.reviews import JudgedCriterion, ReviewedExecution
from kindlm.history.statistics.agreement import Agreement, agreement, kappa_interval, reviews_needed

__all__ = ["SUBSTANTIAL", "Comparison", "PeopleAndJudges", "Trust", "compare_reviews"]

SUBSTANTIAL = 0.6
"""The kappa from which agreement is called substantial.

J. R. Landis and G. G. Koch, "The Measurement of Observer Agreement for Categorical Data",
Biometrics 33 (1977), 159-174.
"""


class Trust(StrEnum):
    """Whether a judge agrees with people substantially, as far as the reviews tell."""

    TRUSTED = "trusted"
    NOT_TRUSTED = "not trusted"
    UNDECIDED = "undecided"


@dataclass(frozen=True, slots=True)
class Comparison:
    """People beside a judge, or beside the recorded verdicts: `judge` and `criterion` are None.

    `criterion` is None where the judge is looked at over all its criteria; `judge` is its model,
    empty if it is not known. `needed` is how many reviews more would tell whether to trust, if
    they come out like these; None where that can not be said.
    """

    judge: str | None
    criterion: str | None
    table: Agreement
    interval: tuple[float, float] | None
    needed: int | None

    @property
    def reviews(self) -> int:
        """How many executions are compared."""
        return self.table.reviews

    @property
    def trust(self) -> Trust:
        """What the interval of kappa says."""
        if self.interval is None or self.interval[0] < SUBSTANTIAL <= self.interval[1]:
            return Trust.UNDECIDED
        return Trust.TRUSTED if self.interval[0] >= SUBSTANTIAL else Trust.NOT_TRUSTED


@dataclass(frozen=True, slots=True)
class PeopleAndJudges:
    """All that reviews tell.

    `verdicts` compares people with what was recorded of whole executions, `judges` with each
    judge, `criteria` with each criterion of each judge. `disagreements` are the executions whose
    recorded verdict is not that of people, `divided` those on which people disagree among
    themselves, `errored` those without a recorded verdict. `left_out` counts executions that
    judges looked at and that nevertheless tell nothing of them.
    """

    reviewed: int
    people: tuple[str, ...]
    verdicts: Comparison | None
    judges: tuple[Comparison, ...]
    criteria: tuple[Comparison, ...]
    disagreements: tuple[ReviewedExecution, ...]
    divided: tuple[ReviewedExecution, ...]
    errored: int
    left_out: int


def compare_reviews(executions: Sequence[ReviewedExecution]) -> PeopleAndJudges:
    """Compare what people said of executions with what judges said, and what was recorded."""
    clear = [execution for execution in executions if execution.people is not None]
    told = [execution for execution in clear if execution.recorded is not None]
    return PeopleAndJudges(
        reviewed=len(executions),
        people=tuple(sorted({review.by for each in executions for review in each.reviews})),
        verdicts=_comparison(None, None, [(e.recorded, e.people) for e in told]),
        judges=tuple(_grouped(clear, _by_judge)),
        criteria=tuple(_grouped(clear, _by_criterion)),
        disagreements=tuple(e for e in told if e.recorded is not e.people),
        divided=tuple(execution for execution in executions if execution.people is None),
        errored=len(clear) - len(told),
        left_out=sum(bool(e.criteria) and next(_by_judge(e), None) is None for e in clear),
    )


_Key = tuple[str, str | None]
_Verdicts = Iterator[tuple[_Key, bool]]


def _by_judge(execution: ReviewedExecution) -> _Verdicts:
    """Yield the verdicts of the judges of which the execution tells something."""
    for judge in dict.fromkeys(criterion.judge or "" for criterion in execution.criteria):
        own = [c for c in execution.criteria if (c.judge or "") == judge]
        if _tells_of(execution, own):
            yield (judge, None), all(criterion.passed for criterion in own)


def _by_criterion(execution: ReviewedExecution) -> _Verdicts:
    """Yield the verdicts on the criteria of which the execution tells something."""
    for criterion in execution.criteria:
        if _tells_of(execution, [criterion]):
            yield (criterion.judge or "", criterion.label), bool(criterion.passed)


def _tells_of(execution: ReviewedExecution, criteria: Sequence[JudgedCriterion]) -> bool:
    """Tell whether these were decided, and either one of them failed or nothing else did."""
    verdicts = [criterion.passed for criterion in criteria]
    if None in verdicts:
        return False
    others = [criterion for criterion in execution.criteria if criterion not in criteria]
    nothing_else_failed = (
        execution.error_code is None
        and not execution.checks_failed
        and all(criterion.passed for criterion in others)
    )
    return False in verdicts or nothing_else_failed


def _grouped(
    executions: Iterable[ReviewedExecution], verdicts: Callable[[ReviewedExecution], _Verdicts]
) -> Iterator[Comparison]:
    pairs: dict[_Key, list[tuple[bool | None, bool | None]]] = {}
    for execution in executions:
        for key, passed in verdicts(execution):
            pairs.setdefault(key, []).append((passed, execution.people))
    for judge, criterion in sorted(pairs, key=lambda key: (key[1] or "", key[0])):
        compared = _comparison(judge, criterion, pairs[judge, criterion])
        if compared is not None:
            yield compared


def _comparison(
    judge: str | None, criterion: str | None, pairs: Iterable[tuple[bool | None, bool | None]]
) -> Comparison | None:
    """Compare verdicts, all of which are there; None if there are none."""
    table = agreement((bool(one), bool(other)) for one, other in pairs)
    if table is None:
        return None
    return Comparison(
        judge, criterion, table, kappa_interval(table), reviews_needed(table, SUBSTANTIAL)
    )
