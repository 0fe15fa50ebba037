"""`{{name}}` in templates: what is inserted is text, and never expanded again.

A template is rendered twice: with the variables of a test when the suite is loaded, and with
environment variables and ports when it is run. Between the two, placeholders for the latter are
marked with a noncharacter that no loaded text can hold, so that a variable whose value reads
`{{env.SECRET}}` stays the text it is.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping

MARK = "\ufdd0"

DEFERRED_PREFIXES = ("env.", "serve.")
"""Names that are filled in at run time; variables of a test cannot have them."""

_PLACEHOLDER = re.compile(r"\{\{([\w.]+)\}\}")
_MARKED = re.compile(MARK + r"\{\{([\w.]+)\}\}")


def is_deferred(name: str) -> bool:
    """Return whether a placeholder is filled in at run time."""
    return name.startswith(DEFERRED_PREFIXES)


def names_in(template: str) -> list[str]:
    """Return the names of all placeholders, each once, in the order of the text."""
    return list(counts_in(template))


def counts_in(template: str) -> Counter[str]:
    """Return how often each placeholder is there, in the order of the text."""
    return Counter(_PLACEHOLDER.findall(template))


def render(template: str, variables: Mapping[str, str]) -> str:
    """Insert the variables of a test; mark what is left for run time.

    Every name must be there: the references of a suite are checked before it is compiled.
    """

    def replacement(match: re.Match[str]) -> str:
        name = match[1]
        return MARK + match[0] if is_deferred(name) else variables[name]

    return _PLACEHOLDER.sub(replacement, template)


def bound_names(rendered: str) -> list[str]:
    """Return the names that a rendered text still needs, each once."""
    return list(dict.fromkeys(_MARKED.findall(rendered)))


def bind(rendered: str, lookup: Callable[[str], str]) -> str:
    """Fill in what `render` left; values that happen to look like placeholders stay."""
    return _MARKED.sub(lambda match: lookup(match[1]), rendered)


def insert(template: str, lookup: Callable[[str], str]) -> str:
    """Fill in what is known at run time in a text that takes no variables, such as a URL."""
    return _PLACEHOLDER.sub(
        lambda match: lookup(match[1]) if is_deferred(match[1]) else match[0], template
    )
