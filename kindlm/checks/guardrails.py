"""The section `guardrails` of `expect`: what must never happen."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

from pydantic import Field

from kindlm.checks.base import Check, ExpectSection, Key, Made, Place, Rule, failed, passed
from kindlm.checks.canary import Canary
from kindlm.checks.output import EMPTY, find_hidden, occurrences, occurs
from kindlm.checks.pii import Pii
from kindlm.dataclass import dataclass
from kindlm.outcome import CheckResult, Demands
from kindlm.ports import CheckContext
from kindlm.section import EXTENSION, Maybe
from kindlm.transcript import Transcript
from kindlm.wording import excerpt, shown

CODES = {
    "KEYWORD_DENIED": "a denied word is in the output",
    "KEYWORD_MISSING": "none of the allowed words is in the output",
}


@dataclass(frozen=True, slots=True)
class KeywordsAllow(Check):
    """The text, or its normal form, contains at least one of `words`, whatever its case."""

    kind = "keywords_allow"
    demands = Demands.TASK
    sarif = Rule(
        "keyword-missing",
        "None of the demanded words in the answer",
        "The final text contains none of the words of guardrails.keywords.allow.",
        "Read the execution with kindlm show; tell the agent what it has to say.",
    )

    words: Sequence[str]

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        words, text = list(self.words), transcript.text
        if any(occurs(word, text) or find_hidden(word, text, 1) for word in words):
            return passed()
        message = (
            f"Expected the output to contain at least one of {shown(words)}, got {shown(text)}."
        )
        code = "KEYWORD_MISSING"
        return failed(code, message, expected=words, actual=excerpt(text))


@dataclass(frozen=True, slots=True)
class KeywordsDeny(Check):
    """The text does not contain `word`, whatever its case, also not inside another word.

    Nor does its normal form.
    """

    kind = "keywords_deny"
    demands = Demands.SAFETY
    sarif = Rule(
        "keyword-denied",
        "A denied word in the answer",
        "The final text contains a word of guardrails.keywords.deny.",
        "Read the execution with kindlm show; tell the agent what it must not say.",
    )

    word: str

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        found, how = occurrences(self.word, transcript.text)
        if not found:
            return passed()
        start = found[0].start
        message = f"The output contains the denied {shown(self.word)}, at character {start}.{how}"
        return failed("KEYWORD_DENIED", message, expected=self.word, evidence=found)


class Keywords(ExpectSection):
    """Required and forbidden words in the output. Case does not matter."""

    deny: list[str] = Field(default=[], examples=[["not my problem"]])
    """None of these may be in the output."""
    allow: list[str] = Field(default=[], examples=[["sorry", "apologise"]])
    """At least one of these must be in the output."""

    def checks(self, schema: Callable[[str], Any]) -> Iterator[Made]:
        for index, word in enumerate(self.deny):
            yield Made(KeywordsDeny(word), word, ("deny", index))
        if self.allow:
            yield Made(KeywordsAllow(self.allow), ", ".join(self.allow), ("allow",))

    def never_fails(self, timeout_ms: float) -> Iterator[tuple[Place, str]]:
        for index, word in enumerate(self.allow):
            if not word:
                yield ("allow", index), EMPTY


class Guardrails(ExpectSection):
    """What must never happen."""

    key = Key(
        "guardrails",
        "What must never happen. kindlm searches texts as written and in their normal form (NFKC, "
        "without invisible characters).",
        order=20,
        in_format=True,
        examples=[{"pii": {}}],
    )

    pii: Maybe[Pii] = Field(default=None, examples=[{}])
    """No personal data. `pii: {}` checks with the defaults."""
    keywords: Maybe[Keywords] = None
    """Forbidden and required words."""
    canary: Maybe[Canary] = Field(
        default=None, examples=[{"places": ["output"]}], json_schema_extra=EXTENSION
    )
    """The canary of the run, `{{run.canary}}`, stays with the agent. `canary: {}` looks for it in
    answers and in the arguments of tool calls."""
