"""One execution for a person to read: what was said, what was called, what was found."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, TextIO

from kindlm.history.masking import Mask, mask_of, masked, source_text
from kindlm.history.rows import (
    AssertionView,
    AttemptView,
    CallView,
    ExecutionView,
    ReviewView,
    SuiteView,
    ToolCallView,
)
from kindlm.history.run_view import RunView
from kindlm.outcome import Outcome, Status
from kindlm.reports.facts import assertion_fields, assertion_name, json_shown, place
from kindlm.reports.figures import duration, money
from kindlm.reports.registry import ReportOptions
from kindlm.reports.terminal.page import Page, Part, mark
from kindlm.reports.untrusted import bounded, one_line, visible
from kindlm.wording import count

_TEXT = 20_000
_VALUE = 2_000
_RAW = 50_000
_EVIDENCE = 10
_CONTEXT = 40


def render_execution(
    view: RunView, execution: ExecutionView, out: TextIO, options: ReportOptions
) -> None:
    """Write what was said in every attempt at an execution, and what was found there.

    With `verbose`, also the bodies as received, what judges were asked, traces and timing.
    """
    suite = next(suite for suite in view.suites if execution.suite_id in suite.parts)
    ended = {attempt.number: attempt for attempt in view.attempts(execution)}
    mask = mask_of(ended.values())
    page = Page(out, options)
    _write_head(suite, execution, page)
    conversation = _Conversation(view, execution, page, mask, verbose=options.verbose)
    numbers = sorted({*conversation.attempts, *ended})
    for number in numbers:
        of = f" of attempt {number}" if len(numbers) > 1 else ""
        conversation.write(number, of)
        if number in ended:
            _write_found(ended[number], of, page, mask, verbose=options.verbose)
        else:
            page.heading(f"Attempt {number} was cut off")
    _write_reviews(view.reviews(execution), page)


def _write_found(attempt: AttemptView, of: str, page: Page, mask: Mask, *, verbose: bool) -> None:
    """Write what came of an attempt: its error, and its assertions."""
    execution = attempt.execution
    _write_error(execution, of, page, mask, verbose=verbose)
    shown = _Assertions(execution, attempt.tool_calls, page, mask, verbose=verbose)
    shown.write(attempt.assertions, of)


def _write_head(suite: SuiteView, execution: ExecutionView, page: Page) -> None:
    status = execution.status
    sign: Part = mark(status) if status else ("-", "dim")
    # A suite that is named after its file says so once.
    places = (suite.name,) if suite.name == execution.file else (suite.name, execution.file)
    where = ", ".join(map(one_line, places))
    page.line(
        sign,
        " ",
        (one_line(execution.test), "bold"),
        f" · {one_line(execution.target)} · repeat {execution.repeat}",
        (f"  {where}", "dim"),
        hang=2,
    )
    page.line((", ".join(_figures(execution)), "dim"), indent=2)
    for warning in execution.warnings:
        page.line(("Warning: ", "yellow"), visible(bounded(warning, 500)), indent=2, hang=2)


def _figures(execution: ExecutionView) -> Iterator[str]:
    yield execution.status.value if execution.status else "never finished"
    if execution.attempt > 1:
        yield f"attempt {execution.attempt}"
    if execution.answers:
        yield count(execution.answers, "answer")
    if execution.latency_ms and execution.answers:
        yield duration(execution.latency_ms)
    if execution.input_tokens is not None:
        yield f"{execution.input_tokens:,} tokens in, {execution.output_tokens or 0:,} out"
    if execution.cost_then_usd is not None:
        yield f"{money(execution.cost_then_usd)} when it was recorded ({execution.cost_source})"
    elif execution.cost_usd is not None:
        yield f"{money(execution.cost_usd)} ({execution.cost_source})"
    elif execution.answers:
        yield "cost unknown"
    if execution.source != execution.id:
        yield f"conversation of {execution.source}"
    if execution.finish_reason:
        yield f"finish reason {execution.finish_reason}"


class _Conversation:
    """Writes what was said, call by call, as the events tell it."""

    def __init__(
        self, view: RunView, execution: ExecutionView, page: Page, mask: Mask, *, verbose: bool
    ) -> None:
        self._first = view.first_messages(execution)
        self._calls = view.calls(execution)
        self._tools = view.tool_calls(execution, all_attempts=True)
        self._page = page
        self._mask = mask
        self._verbose = verbose

    @property
    def attempts(self) -> set[int]:
        """The attempts in which something was said."""
        return {call.attempt for call in self._calls}

    def write(self, attempt: int, of: str) -> None:
        self._page.heading(f"Transcript{of}")
        for message in self._first:
            self._message(message)
        for call in self._calls:
            if call.attempt == attempt:
                self._call(call)

    def _message(self, message: dict[str, Any]) -> None:
        role = f"{message['role']} (prefill)" if message.get("prefill") else message["role"]
        self._said(role, message["text"])

    def _call(self, call: CallView) -> None:
        if call.purpose != "test":
            self._judging(call)
            return
        for message in call.messages:
            # The answers of tools stand below the calls that they answer.
            if message["role"] not in ("tool", "assistant"):
                self._message(message)
        self._outcome(call, "assistant")
        if call.status == "responded" and call.text:
            self._said("assistant", call.text, head=False)
        for used in self._tools:
            if (used.attempt, used.call) == (call.attempt, call.call):
                self._tool(used)
        self._raw(call)

    def _judging(self, call: CallView) -> None:
        self._outcome(call, call.purpose)
        if self._verbose:
            for message in call.messages:
                self._said(f"  {message['role']}", message["text"])
            if call.text:
                self._said(f"  {call.purpose}", call.text)
        self._raw(call)

    def _outcome(self, call: CallView, who: str) -> None:
        """Write the line that says who answered, or why nobody did, and what happens next."""
        model = one_line(call.reported_model or call.model)
        facts = [f"call {call.call}", f"{one_line(call.provider)} {model}"]
        if call.latency_ms is not None:
            facts.append(duration(call.latency_ms))
        if call.recorded_in is not None:
            usd = call.cost_then_usd
            cost = "cost unknown" if usd is None else money(usd)
            facts.append(f"answer of {call.recorded_in} ({cost} then)")
        self._page.blank()
        self._page.line((who, "bold cyan"), (f"  {', '.join(facts)}", "dim"), indent=2, hang=2)
        if call.status is None:
            self._page.line(("no answer was recorded", "magenta"), indent=4)
        if call.status == "failed":
            status = f", HTTP {call.http_status}" if call.http_status else ""
            wait = call.retry_in_ms
            then = "" if wait is None else f" Tried again after {duration(wait)}."
            message = visible(bounded(self._mask.text(call.error or ""), _VALUE, lines=20))
            failed = (f"{call.error_code}{status}", "magenta")
            self._page.line(failed, f": {message}{then}", indent=4, hang=2)

    def _said(self, role: str, text: str | None, *, head: bool = True) -> None:
        if head:
            self._page.blank()
            self._page.line((role, "bold cyan"), indent=2)
        shown = "[erased]" if text is None else bounded(self._mask.text(text), _TEXT)
        self._page.line(visible(shown).rstrip("\n"), indent=4)

    def _tool(self, used: ToolCallView) -> None:
        arguments = json_shown(self._mask.value(used.arguments), _VALUE)
        call = f"{one_line(used.tool)} {arguments}"
        self._page.line(("tool call  ", "cyan"), call, indent=4, hang=2)
        answer = json_shown(self._mask.value(used.response), _VALUE)
        rule = (f"  {one_line(used.rule or 'not answered')}", "dim")
        self._page.line(("answer     ", "cyan"), answer, rule, indent=4, hang=2)
        for problem in used.problems:
            shown = visible(bounded(self._mask.text(problem), _VALUE))
            self._page.line(("problem    ", "yellow"), shown, indent=4, hang=2)

    def _raw(self, call: CallView) -> None:
        if self._verbose and call.raw is not None:
            body = visible(bounded(self._mask.text(call.raw), _RAW))
            self._page.line(("body  ", "dim"), (body, "dim"), indent=4, hang=2)


def _write_error(
    execution: ExecutionView, of: str, page: Page, mask: Mask, *, verbose: bool
) -> None:
    if execution.error_code is None:
        return
    page.heading(f"Error{of}")
    message = visible(bounded(mask.text(execution.error or ""), _VALUE, lines=40))
    code = (f"{execution.error_code} ({execution.error_number})", "magenta")
    page.line(code, f": {message}", indent=2, hang=2)
    if execution.hint:
        page.line(visible(bounded(execution.hint, _VALUE, lines=10)), indent=4)
    if verbose and execution.trace:
        page.line((visible(bounded(mask.text(execution.trace), _TEXT)), "dim"), indent=4)


def _write_reviews(reviews: Sequence[ReviewView], page: Page) -> None:
    if not reviews:
        return
    page.heading("Reviews")
    for review in reviews:
        status = Status.PASSED if review.passed else Status.FAILED
        when = f"{review.at[:10]} {review.at[11:16]} UTC"
        facts = (f"  {one_line(review.by)}, {when}", "dim")
        page.line(mark(status), " pass" if review.passed else " fail", facts, indent=2, hang=2)
        if review.note is not None:
            page.line(visible(bounded(review.note, _VALUE)), indent=4)


class _Assertions:
    """Writes every assertion with what it saw and where."""

    def __init__(
        self,
        execution: ExecutionView,
        tool_calls: Sequence[ToolCallView],
        page: Page,
        mask: Mask,
        *,
        verbose: bool,
    ) -> None:
        self._execution = execution
        self._tool_calls = tool_calls
        self._page = page
        self._mask = mask
        self._verbose = verbose

    def write(self, assertions: Sequence[AssertionView], of: str) -> None:
        self._page.heading(f"Assertions{of}")
        if not assertions:
            self._page.line("None was evaluated.", indent=2)
        for assertion in assertions:
            self._one(masked(assertion, self._mask))

    def _one(self, assertion: AssertionView) -> None:
        page = self._page
        facts = [place(self._execution.file, assertion)]
        if assertion.outcome in (Outcome.INCONCLUSIVE, Outcome.SKIPPED):
            facts.insert(0, assertion.outcome.value)
        if self._verbose:
            facts.append(duration(assertion.duration_ms))
        page.line(
            mark(assertion.outcome),
            f" {assertion_name(assertion)}",
            (f"  {assertion.failure_code}" if assertion.failure_code else "", "red"),
            (f"  {', '.join(facts)}", "dim"),
            indent=2,
            hang=2,
        )
        if assertion.message:
            page.line(visible(bounded(assertion.message, _VALUE, lines=20)), indent=4)
        page.fields(assertion_fields(assertion, limit=_VALUE), indent=4)
        self._evidence(assertion)
        if self._verbose and assertion.trace:
            page.line((visible(bounded(assertion.trace, _TEXT)), "dim"), indent=4)

    def _evidence(self, assertion: AssertionView) -> None:
        for evidence in assertion.evidence[:_EVIDENCE]:
            name = f"{one_line(evidence['name'])}: " if evidence.get("name") else ""
            head = (f"{one_line(evidence['source'])} at {evidence['start']}  {name}", "dim")
            self._page.line(head, *self._excerpt(evidence), indent=4, hang=2)
        more = len(assertion.evidence) - _EVIDENCE
        if more > 0:
            self._page.line(f"… and {more} more places", indent=4)

    def _excerpt(self, evidence: dict[str, Any]) -> Iterator[Part]:
        """Yield what was found with a little of what stands beside it; redacted where it must."""
        if evidence.get("excerpt") is not None:
            yield (one_line(evidence["excerpt"]), "bold")
            return
        text = source_text(evidence["source"], self._execution, self._tool_calls)
        if text is None:
            yield "[erased or withheld]"
            return
        shown, start, end = self._mask.text(text), evidence["start"], evidence["end"]
        yield one_line(shown[max(start - _CONTEXT, 0) : start])
        yield (f"»{one_line(shown[start:end])}«", "bold red")
        yield one_line(shown[end : end + _CONTEXT])
