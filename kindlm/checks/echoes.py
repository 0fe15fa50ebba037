"""Tells a judge's own answer from one that it found in what it was to judge.

The author of a transcript can write a judgement into it, and hope that the judge repeats it. A
judgement that says what one in the data says is therefore no judgement. Spelling does not hide it:
escapes, white space, case, the order of the members, the form of a number, characters that look
alike to a compatibility decomposition, and characters that are not seen at all.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any

from kindlm.normal_form import INVISIBLE, TAGS, normal_form, readings_of, with_pairs_joined
from kindlm.transcript import Transcript

_NUMBER = r"\"?(-?[0-9.]{1,40}(?:e[+-]?[0-9]{1,3})?)"
_QUOTES = re.compile("['`\u2018-\u201f\u2032\u2033\u2039\u203a\u00ab\u00bb]")
# What a reader does not see, and the backslashes of escapes.
_UNSEEN = re.compile(rf"[\s\\{INVISIBLE}]+")


def is_copy(members: Mapping[str, Any], given: Iterable[str]) -> bool:
    """Return whether one of the `readings` holds all of these members of a JSON object.

    A float is found in any form of the number, whether it stands in quotes or not.
    """
    texts = [
        f'"{_plain(name)}":{_written(value)}'
        for name, value in members.items()
        if not isinstance(value, float)
    ]
    numbers = [
        (re.compile(f'"{_plain(name)}":{_NUMBER}'), value)
        for name, value in members.items()
        if isinstance(value, float)
    ]
    return any(
        all(text in plain for text in texts)
        and all(_holds(pattern, value, plain) for pattern, value in numbers)
        for plain in given
    )


def readings(texts: Iterable[str]) -> Sequence[str]:
    """Return all that texts can be taken to say, in one spelling, to look for copies in.

    That takes long where somebody wrote a lot: once for all that is looked for, and never in the
    event loop.
    """
    return tuple(dict.fromkeys(_plain(reading) for text in texts for reading in readings_of(text)))


def texts_of(transcript: Transcript) -> Iterator[str]:
    """Yield all that a judge gets to read of a transcript, JSON as text."""
    for turn in transcript.turns:
        yield turn.user
        for step in turn.steps:
            yield step.text
            for use in step.tool_uses:
                yield use.call.name
                yield use.call.written
                yield json.dumps(use.response, ensure_ascii=False)


def _plain(text: str) -> str:
    """Return a text without all that does not change what a reader takes it for."""
    if not text.isascii():
        text = with_pairs_joined(text).translate(TAGS)
        form = normal_form(text)
        text = text if form is None else form.text
    return _UNSEEN.sub("", _QUOTES.sub('"', text.casefold()))


def _written(value: Any) -> str:
    return f'"{_plain(value)}"' if isinstance(value, str) else _plain(json.dumps(value))


def _holds(pattern: re.Pattern[str], value: float, plain: str) -> bool:
    """Return whether a pattern finds a number in a text that is this one."""
    for found in pattern.findall(plain):
        try:
            if float(found) == value:
                return True
        except ValueError:
            continue
    return False
