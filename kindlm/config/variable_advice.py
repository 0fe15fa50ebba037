"""Warnings of placeholders that stay as they are, and of variables that would run as a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from pathlib import PurePosixPath

from kindlm.checks.guardrails import CANARY
from kindlm.config.compile import compile_words
from kindlm.config.diagnostics import Reporter
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import is_deferred, names_in
from kindlm.config.schema import KindlmConfig
from kindlm.config.templates import all_templates
from kindlm.document import Path, Raw, items, texts
from kindlm.suite import TOOL_PLACEHOLDER

_NEARLY = re.compile(r"\{\{([ \t]*[\w.-]{1,60}[ \t]*)\}\}|\$\{((?:env|serve)\.[\w.]+)\}")
_EXACT = re.compile(r"\{\{[\w.]+\}\}")
_ANY = re.compile(r"\{\{[^{}\n]{1,60}\}\}")


def warn_of_placeholders(
    config: KindlmConfig, raw: Raw, reporter: Reporter, files: ReferencedFiles
) -> None:
    """Report texts that stay as they are although somebody may expect a value in them."""
    for path, text in all_templates(raw, files):
        _warn_of_near_misses(path, text, reporter)
    for index, test in enumerate(config.tests):
        path = ("tests", index)
        for name, value in test.vars.items():
            deferred = [item for item in names_in(value) if is_deferred(item)]
            if deferred:
                reporter.warning(
                    (*path, "vars", name),
                    f"{{{{{deferred[0]}}}}} in a variable is not replaced: values are not expanded",
                    "Put it into the prompt instead",
                    reason="not_expanded",
                )
        raw_test = raw["tests"][index]
        for place, text in texts(raw_test.get("expect"), (*path, "expect")):
            found = [name for name in names_in(text) if name in test.vars or is_deferred(name)]
            if found:
                reporter.warning(
                    place,
                    f"{{{{{found[0]}}}}} is not replaced: variables are not available in `expect`",
                    "Write the value",
                    reason="not_expanded",
                )
        for at, tool in items(raw_test, "tools"):
            for key in ("responses", "defaultResponse"):
                for place, text in texts(tool.get(key), (*path, *at, key)):
                    _warn_of_answer(place, text, reporter)


def _warn_of_near_misses(path: Path, text: str, reporter: Reporter) -> None:
    for match in _NEARLY.finditer(text):
        if _EXACT.fullmatch(match[0]):
            continue
        name = (match[1] or match[2]).strip()
        hint = "Names have letters, digits, _ and dots"
        if _EXACT.fullmatch(f"{{{{{name}}}}}"):
            hint = f"Write {{{{{name}}}}}"
        reporter.warning(
            path,
            f"{match[0]} is not replaced: it is not a placeholder",
            hint,
            reason="near_placeholder",
            value=match[0],
        )
        return


def _warn_of_answer(path: Path, text: str, reporter: Reporter) -> None:
    for match in _ANY.finditer(text):
        if not TOOL_PLACEHOLDER.fullmatch(match[0]) and match[0] != f"{{{{{CANARY}}}}}":
            reporter.warning(
                path,
                f"{match[0]} is not replaced: it is not a placeholder of a tool",
                "In tool results there are {{args.NAME}}, {{state.NAME}} and {{run.canary}}",
                reason="not_expanded",
            )
            return


_INTERPRETERS = [
    [re.compile(pattern, re.DOTALL) for pattern in patterns]
    for patterns in (
        (
            r"(?:ba|da|a|z|k|fi)?sh",
            r"-\w*c\w*(\W.*)?",
            r"[-+]\w*[oO]|--rcfile|--init-file",
        ),
        (r"(?:python|pypy)[\d.]*", r"-[^\WWXmc]*c(.*)", r"-[^\Wmc]*[WX]|--check-hash-based-pycs"),
        (r"perl|ruby", r"-[^\WMmIiDxreE]*[eE](.*)", r"-[Ir]"),
        (r"node|bun", r"(?:-[ep]+|--eval|--print)(?:=(.*))?", r"-[rC]|--require|--import|--loader"),
        (r"php", r"-r(.*)", r"-[cd]"),
    )
]
"""Of programs that run programs: their names; the options that a program follows, maybe without a
space (the group); and the options that have another word as their value."""


def warn_of_commands(config: KindlmConfig, reporter: Reporter) -> None:
    """Report variables inside a program that is an argument of an interpreter."""
    for index, test in enumerate(config.tests):
        words = () if test.command is None else compile_words(test.command)
        for position in _programs(words):
            # A port is a number, and of our own choice.
            found = names_in(words[position])
            name = next((name for name in found if not name.startswith("serve.")), None)
            if name is not None:
                place: Path = ("tests", index, "command")
                reporter.warning(
                    place if isinstance(test.command, str) else (*place, position),
                    f"What is in {{{{{name}}}}} becomes part of a program here and is executed",
                    f"Pass it as a separate argument after the program: {{{{{name}}}}}",
                    reason="run_as_program",
                    value=f"{{{{{name}}}}}",
                )


def _programs(words: Sequence[str]) -> Iterator[int]:
    """Yield which words are programs that an interpreter among the words before them runs."""
    for start, word in enumerate(words, start=1):
        for names, option, valued in _INTERPRETERS:
            if not names.fullmatch(PurePosixPath(word).name):
                continue
            asked = is_value = False
            for position in range(start, len(words)):
                if is_value:
                    is_value = False
                    continue
                if not words[position].startswith(("-", "+")):
                    # Else it is a file with the program, and the rest are arguments.
                    if asked:
                        yield position
                    break
                found = option.fullmatch(words[position])
                if found and found[1] and not asked:
                    yield position
                    break
                asked = asked or found is not None
                is_value = valued.fullmatch(words[position]) is not None
