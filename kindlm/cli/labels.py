"""Which names a run may be given: none that means a run already."""

from __future__ import annotations

import unicodedata

from kindlm.errors import ErrorCode, KindlmError

_RUN_NAMES = frozenset({"latest", "previous", "baseline"})

_LONGEST = 200

_CONTROLS = frozenset({"Cc", "Zl", "Zp"})
"""Categories of Unicode: control characters, and what ends lines and paragraphs."""


def label_problem(label: str) -> KindlmError | None:
    """Return why a name can not be a label, None if it can."""
    if not label.strip():
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            "A label can not be empty.",
            "Choose a name by which you will find the run again.",
        )
    if len(label) > _LONGEST:
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"A label has at most {_LONGEST} characters; this one has {len(label):,}.",
            "Choose a shorter name.",
        )
    if any(unicodedata.category(char) in _CONTROLS for char in label):
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"{label!r} can not be a label: it has line breaks or control characters.",
            "Choose a name of one line.",
        )
    if label in _RUN_NAMES or "~" in label or label.startswith("git:"):
        return KindlmError(
            ErrorCode.CONFIG_VALIDATION_ERROR,
            f"{label!r} can not be a label: it is how other runs are named.",
            f"Choose another name: not {', '.join(sorted(_RUN_NAMES))}, none with ~, none with git:"
            " at its start.",
        )
    return None
