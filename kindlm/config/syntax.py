"""What a YAML syntax error means, in words of someone who writes a configuration."""

from __future__ import annotations

from dataclasses import dataclass

import yaml


@dataclass(frozen=True, slots=True)
class SyntaxExplanation:
    """`at_context` means that the error is where its construct begins."""

    message: str
    hint: str
    at_context: bool = False


_UNCLOSED = {
    "while parsing a flow sequence": "[",
    "while parsing a flow mapping": "{",
    "while scanning a quoted scalar": "quote",
}

_BY_PROBLEM = (
    (
        "mapping values are not allowed",
        "A ':' is not allowed here",
        "Put the value in quotes if it contains ': ', or check the indentation of this line",
    ),
    (
        "found unknown escape character",
        "This escape is unknown in double quotes",
        "Write \\\\ for a backslash, or use single quotes, where a backslash is just a backslash",
    ),
    (
        "did not find expected node content",
        "A value is missing here",
        "Check the brackets and commas of this line; text with brackets or commas needs quotes",
    ),
    (
        "invalid Unicode character escape",
        "This escape stands for no character",
        "Use the escape of a whole character, such as \\U0001F600",
    ),
    (
        "did not find expected <document start>",
        "There is text behind the end of the value",
        "Put the whole value in quotes",
    ),
    (
        "could not find expected ':'",
        "A ':' is missing after a key",
        "Write `key: value`; lines of a longer text are indented under their key",
    ),
    (
        "did not find expected key",
        "The indentation does not fit the lines before",
        "Keys of one mapping begin in the same column",
    ),
    (
        "did not find expected '-' indicator",
        "A list ends here, but the line is not indented as what follows it",
        "Items of one list begin with '-' in the same column; keys do not mix with items",
    ),
    (
        "found undefined tag handle",
        "This tag is unknown",
        "A text that begins with ! needs quotes",
    ),
    (
        "found incompatible YAML document",
        "This version of YAML is unknown",
        "Remove the %YAML line",
    ),
)


def explain_syntax(
    error: yaml.MarkedYAMLError,
    character: str,
    opened_on: int | None,
    quoted_from: int | None = None,
) -> SyntaxExplanation:
    """Explain an error of PyYAML's parser.

    Args:
        error: what the parser said.
        character: the character it stopped at, "" at the end of the file.
        opened_on: the line on which the surrounding construct begins, if known.
        quoted_from: the line on which a quoted text begins that ends right before, if one does.
    """
    problem = error.problem or ""
    if quoted_from is not None:
        return SyntaxExplanation(
            f"Text follows the end of the quote that opens on line {quoted_from}",
            f"Close the quote on line {quoted_from}, or double the quotes inside single ones and "
            'write \\" inside double ones',
        )
    opener = _UNCLOSED.get(error.context or "")
    if opener == "quote" and "end of stream" in problem:
        return SyntaxExplanation("A quote is never closed", "Add the closing quote", True)
    if opener in ("[", "{"):
        closer = "]" if opener == "[" else "}"
        return SyntaxExplanation(
            f"A '{opener}' that opens on line {opened_on} is not closed",
            f"Add the '{closer}', or a ',' between two entries",
        )
    if "tab character" in problem:
        return _explain_character("\t")
    if "cannot start any token" in problem:
        return _explain_character(character)
    for part, message, hint in _BY_PROBLEM:
        if part in problem:
            return SyntaxExplanation(message, hint)
    return SyntaxExplanation(
        f"YAML syntax error: {problem or 'the text cannot be read'}",
        "Check the indentation, quotes and brackets of this line and the one before",
    )


def _explain_character(character: str) -> SyntaxExplanation:
    if character == "\t":
        return SyntaxExplanation(
            "A tab is used for indentation", "Indent with spaces: YAML allows no tabs there"
        )
    return SyntaxExplanation(f"A value cannot begin with '{character}'", "Put the value in quotes")
