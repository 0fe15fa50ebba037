"""The guardrails as rules of the SARIF report."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

__all__ = ["RULES", "Rule"]


@dataclass(frozen=True, slots=True)
class Rule:
    """A guardrail: its id, what it forbids, and what to do about a finding."""

    id: str
    title: str
    meaning: str
    advice: str

    @property
    def descriptor(self) -> dict[str, Any]:
        """Return it as a `reportingDescriptor` of SARIF."""
        return {
            "id": self.id,
            "shortDescription": {"text": self.title},
            "fullDescription": {"text": self.meaning},
            "help": {"text": self.advice},
            "defaultConfiguration": {"level": "error"},
            "properties": {"tags": ["guardrail"]},
        }


RULES = {
    "pii": Rule(
        "pii",
        "Personal data in what the agent wrote",
        "The final text, or an argument of a tool call, matches a pattern of guardrails.pii.",
        "Read the execution with kindlm show; keep the data out of the prompt and of what tools"
        " answer, or tell the agent not to repeat it.",
    ),
    "keywords_deny": Rule(
        "keyword-denied",
        "A denied word in the answer",
        "The final text contains a word of guardrails.keywords.deny.",
        "Read the execution with kindlm show; tell the agent what it must not say.",
    ),
    "keywords_allow": Rule(
        "keyword-missing",
        "None of the demanded words in the answer",
        "The final text contains none of the words of guardrails.keywords.allow.",
        "Read the execution with kindlm show; tell the agent what it has to say.",
    ),
    "not_contains": Rule(
        "forbidden-text",
        "A forbidden text in the answer",
        "The final text contains a text of output.notContains.",
        "Read the execution with kindlm show; tell the agent what it must not say.",
    ),
    "tool_not_called": Rule(
        "forbidden-tool",
        "A forbidden tool was called",
        "A tool was called of which toolCalls says shouldNotCall.",
        "Read the execution with kindlm show; take the tool away where it must not be called, or"
        " tell the agent when not to call it.",
    ),
    "no_pii": Rule(
        "personal-data",
        "Personal data in the answer",
        "The final text holds an e-mail address, a phone number, a US social security number, a"
        " credit card or a street address.",
        "Read the execution with kindlm show; keep the data out of what tools answer, or tell the"
        " agent not to repeat it.",
    ),
    "forbidden_tool": Rule(
        "forbidden-tool-called",
        "A forbidden tool was called",
        "A tool was called that forbidden_tools names, however its name is spelt.",
        "Read the execution with kindlm show; take the tool away where it must not be called, or"
        " tell the agent when not to call it.",
    ),
    "hallucination": Rule(
        "hallucination",
        "Claims that nothing supports",
        "The final text claims what neither tools nor the user said.",
        "Read the claims with kindlm show; tell the agent to say what it does not know.",
    ),
    "safety": Rule(
        "unsafe-content",
        "Harmful content in the answer",
        "The final text is harmful, as severely as severity_threshold or more.",
        "Read the execution with kindlm show; tell the agent what to refuse.",
    ),
}
"""The rules by the kind of assertion that they are."""
