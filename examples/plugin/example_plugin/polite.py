"""A check: `expect: { polite: { words: [please] } }`."""

from kindlm.plugins import Check, CheckContext, CheckResult, Transcript


class Polite(Check):
    """The answer is polite."""

    words: list[str] = ["please", "thank"]
    """Words of which the answer must have one; case does not matter."""

    def evaluate(self, transcript: Transcript, context: CheckContext) -> CheckResult:
        if any(word.lower() in transcript.text.lower() for word in self.words):
            return self.passed()
        message = f"The answer has none of {', '.join(self.words)}"
        return self.failed("RUDE", message, expected=self.words, actual=transcript.text)
