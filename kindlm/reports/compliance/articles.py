"""What testing can show of Regulation (EU) 2024/1689, the Artificial Intelligence Act.

For each article that testing speaks to: the gates whose results are evidence for it, and what of it
no test can show. Articles 9 to 15 state the requirements for high-risk systems, Article 72 the
monitoring after they are placed on the market; Annex IV lists what their documentation holds.
"""

from __future__ import annotations

from dataclasses import asdict, dataclass
from typing import Any

from markupsafe import Markup


@dataclass(frozen=True, slots=True)
class Article:
    """An article: what the results below speak to, and what they do not."""

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
        "Every call of a model, tool step and result is in a log that can be verified.",
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


def articles_for(gates: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the articles, each with the results of the gates that are evidence for it.

    Their texts are those above, and need no escaping.
    """
    return [
        {
            **{name: _written(value) for name, value in asdict(article).items()},
            "gates": [gate for gate in gates if gate["name"] in article.gates],
        }
        for article in ARTICLES
    ]


def _written(value: Any) -> Any:
    return Markup(value) if isinstance(value, str) else value  # noqa: S704
