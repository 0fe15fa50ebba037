"""`-k EXPR`: expressions that select tests by name, such as `refund and not (gpt or slow)`.

A word matches a test if one of its names contains the word, whatever the case. A word with spaces,
parentheses, or the name of an operator is written in quotes.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kindlm.errors import Err, Ok, Result, misuse

Keywords: TypeAlias = Callable[[Sequence[str]], bool]
"""Returns whether an expression matches a test, given its names in lower case."""

_TOKEN = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([()]|[^\s()]+))""")

_OPERATORS = frozenset({"and", "or", "not", "(", ")"})

_MOST_WORDS = 200
"""It also bounds how deep an expression nests."""


def parse_keywords(text: str) -> Result[Keywords]:
    """Return what an expression matches, or what is wrong with it."""
    try:
        parser = _Parser(text)
        found = parser.any_of()
        parser.end()
    except ValueError as error:
        message = f"-k {text!r} is not a valid expression: {error}."
        return Err(
            misuse(message, "Write names with and, or, not and parentheses: -k 'a and not b'")
        )
    return Ok(found)


class _Parser:
    """Reads an expression from left to right; methods raise `ValueError` with the reason."""

    def __init__(self, text: str) -> None:
        # A quoted word is a pair, so that it is not taken for an operator.
        self._tokens: list[str | tuple[str]] = []
        for double, single, bare in _TOKEN.findall(text.rstrip()):
            self._tokens.append(bare or (double or single,))
        if len(self._tokens) > _MOST_WORDS:
            message = f"it has more than {_MOST_WORDS} words"
            raise ValueError(message)
        self._tokens.reverse()

    def any_of(self) -> Keywords:
        """Read what `or` joins."""
        parts = [self._all_of()]
        while self._take("or"):
            parts.append(self._all_of())
        return lambda names: any(part(names) for part in parts)

    def end(self) -> None:
        """Make sure that nothing is left."""
        if self._tokens:
            rest = self._shown()
            message = f"{rest} closes nothing" if rest == "')'" else f"no operator before {rest}"
            raise ValueError(message)

    def _all_of(self) -> Keywords:
        parts = [self._one()]
        while self._take("and"):
            parts.append(self._one())
        return lambda names: all(part(names) for part in parts)

    def _one(self) -> Keywords:
        if self._take("not"):
            part = self._one()
            return lambda names: not part(names)
        if self._take("("):
            part = self.any_of()
            if not self._take(")"):
                found = f" before {self._shown()}" if self._tokens else ""
                message = f"a parenthesis is not closed{found}"
                raise ValueError(message)
            return part
        if not self._tokens or self._tokens[-1] in _OPERATORS:
            place = f"before {self._shown()}" if self._tokens else "at the end"
            message = f"a name is missing {place}"
            raise ValueError(message)
        token = self._tokens.pop()
        word = (token if isinstance(token, str) else token[0]).lower()
        return lambda names: any(word in name for name in names)

    def _take(self, operator: str) -> bool:
        if not self._tokens or self._tokens[-1] != operator:
            return False
        self._tokens.pop()
        return True

    def _shown(self) -> str:
        token = self._tokens[-1]
        return repr(token if isinstance(token, str) else token[0])
