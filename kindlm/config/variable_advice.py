"""Warnings of placeholders that stay as they are, and of variables that would run as a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kindlm.checks.canary import CANARY
from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path, Raw, items, texts
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import is_deferred, names_in
from kindlm.config.schema import KindlmConfig, TestConfig
from kindlm.config.targets import compile_words
from kindlm.config.templates import all_templates
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
        _warn_of_values(path, test, reporter)
        raw_test = raw["tests"][index]
        for place, text in texts(raw_test.get("expect"), (*path, "expect")):
            _warn_of_expected(place, text, test, reporter)
        for place, text in _answers(path, raw_test):
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


def _warn_of_values(path: Path, test: TestConfig, reporter: Reporter) -> None:
    for name, value in test.vars.items():
        deferred = [item for item in names_in(value) if is_deferred(item)]
        if deferred:
            reporter.warning(
                (*path, "vars", name),
                f"{{{{{deferred[0]}}}}} in a variable is not replaced: values are not expanded",
                "Put it into the prompt instead",
                reason="not_expanded",
            )


def _warn_of_expected(path: Path, text: str, test: TestConfig, reporter: Reporter) -> None:
    found = [name for name in names_in(text) if name in test.vars or is_deferred(name)]
    if found:
        reporter.warning(
            path,
            f"{{{{{found[0]}}}}} is not replaced: variables are not available in `expect`",
            "Write the value",
            reason="not_expanded",
        )


def _answers(path: Path, test: Raw) -> Iterator[tuple[Path, str]]:
    for place, tool in items(test, "tools"):
        yield from texts(tool.get("responses"), (*path, *place, "responses"))
        yield from texts(tool.get("defaultResponse"), (*path, *place, "defaultResponse"))


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


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """A program that runs programs.

    Attributes:
        names: what it is called.
        option: what a program to run follows.
        valued: options that have another word as their value.
        fix: how to give such a program arguments; the interpreter and the variable are put in.
    """

    names: re.Pattern[str]
    option: re.Pattern[str]
    valued: re.Pattern[str]
    fix: str


_INTERPRETERS = tuple(
    _Interpreter(re.compile(names), re.compile(option), re.compile(valued), fix)
    for names, option, valued, fix in (
        (r"(?:ba|da|a|z|k|fi)?sh", r"-\w*c", r"[-+]\w*[oO]", "{0} -c '… \"$1\"' {0} {1}"),
        (r"(?:python|pypy)[\d.]*", r"-\w*c", r"-\w*[WX]", "{0} -c '… sys.argv[1]' {1}"),
        (r"perl|ruby", r"-\w*[eE]", r"-[Ir]", "{0} -e '… ARGV[0]' {1}"),
        (r"node|bun", r"-[ep]+|--eval|--print", r"-r|--require", "{0} -e '… argv[1]' {1}"),
        (r"php", r"-r", r"-d", "{0} -r '… $argv[1];' {1}"),
    )
)


def warn_of_commands(config: KindlmConfig, reporter: Reporter) -> None:
    """Report variables inside a program that is an argument of an interpreter."""
    for index, test in enumerate(config.tests):
        if test.command is None:
            continue
        place: Path = ("tests", index, "command")
        for position, name, fix in _run_as_program(compile_words(test.command)):
            reporter.warning(
                place if isinstance(test.command, str) else (*place, position),
                f"What is in {{{{{name}}}}} becomes part of a program here and is executed",
                f"Pass it as a separate argument: {fix}",
                reason="run_as_program",
                value=f"{{{{{name}}}}}",
            )


def _run_as_program(words: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield where a word is a program with a variable in it, the variable, and how to fix it."""
    for start, word in enumerate(words):
        program = PurePosixPath(word).name
        for interpreter in _INTERPRETERS:
            if interpreter.names.fullmatch(program):
                position = _program(words, start + 1, interpreter)
                # A port is a number, and of our own choice.
                found = names_in(words[position]) if position is not None else ()
                name = next((name for name in found if not name.startswith("serve.")), None)
                if position is not None and name is not None:
                    yield position, name, interpreter.fix.format(program, f"{{{{{name}}}}}")


def _program(words: Sequence[str], start: int, interpreter: _Interpreter) -> int | None:
    """Return which word is the program to run, among those that follow an interpreter."""
    asked = is_value = False
    for position in range(start, len(words)):
        word = words[position]
        if is_value:
            is_value = False
        elif not word.startswith(("-", "+")):
            # Else it is a file with the program, and the rest are arguments.
            return position if asked else None
        elif interpreter.option.fullmatch(word):
            asked = True
        elif interpreter.option.match(word) and not asked:
            return position  # the program follows without a space
        else:
            is_value = interpreter.valued.fullmatch(word) is not None
    return None
