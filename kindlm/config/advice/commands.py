"""Warnings of commands in which the text of a variable would be run as a program."""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import PurePosixPath

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path
from kindlm.config.interpolation import names_in
from kindlm.config.schema import KindlmConfig
from kindlm.config.targets import compile_words


@dataclass(frozen=True, slots=True)
class _Interpreter:
    """A program that runs programs.

    Attributes:
        names: what it is called.
        option: what a program to run follows.
        valued: options that have another word as their value.
        mend: how to give such a program arguments; the interpreter and the variable are put in.
    """

    names: re.Pattern[str]
    option: re.Pattern[str]
    valued: re.Pattern[str]
    mend: str


_INTERPRETERS = tuple(
    _Interpreter(re.compile(names), re.compile(option), re.compile(valued), mend)
    for names, option, valued, mend in (
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
        for position, name, mend in _run_as_program(compile_words(test.command)):
            reporter.warning(
                place if isinstance(test.command, str) else (*place, position),
                f"What is in {{{{{name}}}}} becomes part of a program here, and is run",
                f"Pass it as an argument of its own: {mend}",
                reason="run_as_program",
                value=f"{{{{{name}}}}}",
            )


def _run_as_program(words: Sequence[str]) -> Iterator[tuple[int, str, str]]:
    """Yield where a word is a program with a variable in it, the variable, and how to mend it."""
    for start, word in enumerate(words):
        program = PurePosixPath(word).name
        for interpreter in _INTERPRETERS:
            if interpreter.names.fullmatch(program):
                position = _program(words, start + 1, interpreter)
                # A port is a number, and of our own choice.
                found = names_in(words[position]) if position is not None else ()
                name = next((name for name in found if not name.startswith("serve.")), None)
                if position is not None and name is not None:
                    yield position, name, interpreter.mend.format(program, f"{{{{{name}}}}}")


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
