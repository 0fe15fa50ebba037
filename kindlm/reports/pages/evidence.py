"""What an assertion points at, with a little of what stands beside it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from kindlm.history.masking import Mask, source_text
from kindlm.history.rows import AssertionView, ExecutionView, ToolCallView

_EXCERPTS = 10
_CONTEXT = 60


def excerpts_of(
    assertion: AssertionView, execution: ExecutionView, tools: Sequence[ToolCallView], mask: Mask
) -> Iterator[tuple[str, str, str, str]]:
    """Yield what an assertion points at: where that is, and the text before, of, and after it."""
    for evidence in assertion.evidence[:_EXCERPTS]:
        name = f" {evidence['name']}" if evidence.get("name") else ""
        where = f"{evidence['source']} at {evidence['start']}{name}"
        if evidence.get("excerpt") is not None:
            yield where, "", evidence["excerpt"], ""
            continue
        text = source_text(evidence["source"], execution, tools)
        if text is None:
            yield where, "", "[erased or withheld]", ""
            continue
        shown, start, end = mask.text(text), evidence["start"], evidence["end"]
        yield (
            where,
            shown[max(start - _CONTEXT, 0) : start],
            shown[start:end],
            shown[end : end + _CONTEXT],
        )
