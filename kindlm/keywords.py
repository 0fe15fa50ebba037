"""`-k EXPR`: expressions that select tests by name, such as `refund and not (gpt or slow)`.

A word matches a test if one of its names contains the word, whatever the case. A word with spaces,
parentheses, or the name of an operator is written in quotes.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Sequence
from typing import TypeAlias

from kindlm.errors import Err, Ok, Result, misuse

Keywords: TypeAlias = Callable[[Sequence[str]], bool]
"""Returns whether an expression matches a test, given its names in lower case."""

_TOKEN = re.compile(r"""\s*(?:"([^"]*)"|'([^']*)'|([()]|[^\s()]+))""")
_OPERATORS = frozenset({"and", "or", "not", "(", ")"})
_NODES = (ast.BoolOp, ast.boolop, ast.UnaryOp, ast.unaryop, ast.Constant)
_MOST_WORDS = 200
"""It also bounds how deep an expression nests."""


def parse_keywords(text: str) -> Result[Keywords]:
    """Return what an expression matches, or what is wrong with it."""
    tokens = _TOKEN.findall(text.rstrip())
    # Python reads the expression, in which each word is the number of its place.
    written = (
        bare if bare in _OPERATORS else str(place) for place, (_, _, bare) in enumerate(tokens)
    )
    why = f"it has more than {_MOST_WORDS} words"
    if len(tokens) <= _MOST_WORDS:
        try:
            expression = ast.parse(" ".join(written), mode="eval").body
        except SyntaxError as error:
            why = error.msg
        else:
            why = "an operator is missing"
            if all(isinstance(node, _NODES) for node in ast.walk(expression)):
                words = [(bare or double or single).lower() for double, single, bare in tokens]
                return Ok(lambda names: _holds(expression, words, names))
    message = f"-k {text!r} is not a valid expression: {why}."
    return Err(misuse(message, "Write names with and, or, not and parentheses: -k 'a and not b'"))


def _holds(expression: ast.expr, words: Sequence[str], names: Sequence[str]) -> bool:
    match expression:
        case ast.BoolOp(ast.And(), parts):
            return all(_holds(part, words, names) for part in parts)
        case ast.BoolOp(_, parts):
            return any(_holds(part, words, names) for part in parts)
        case ast.UnaryOp(_, part):
            return not _holds(part, words, names)
    assert isinstance(expression, ast.Constant)
    word = words[int(str(expression.value))]
    return any(word in name for name in names)
