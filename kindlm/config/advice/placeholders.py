"""Warnings of what looks like a placeholder and is none."""

from __future__ import annotations

import re
from collections.abc import Iterator

from kindlm.config.diagnostics import Reporter
from kindlm.config.document import Path
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import is_deferred, names_in
from kindlm.config.raw import Raw, items, texts
from kindlm.config.schema import KindlmConfig, TestConfig
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
            f"{match[0]} stays as it is: it is no placeholder",
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
                f"{{{{{deferred[0]}}}}} in a variable stays as it is: values are not expanded",
                "Put it into the prompt instead",
                reason="not_expanded",
            )


def _warn_of_expected(path: Path, text: str, test: TestConfig, reporter: Reporter) -> None:
    found = [name for name in names_in(text) if name in test.vars or is_deferred(name)]
    if found:
        reporter.warning(
            path,
            f"{{{{{found[0]}}}}} stays as it is: variables do not reach expectations",
            "Write the value",
            reason="not_expanded",
        )


def _answers(path: Path, test: Raw) -> Iterator[tuple[Path, str]]:
    for place, tool in items(test, "tools"):
        yield from texts(tool.get("responses"), (*path, *place, "responses"))
        yield from texts(tool.get("defaultResponse"), (*path, *place, "defaultResponse"))


def _warn_of_answer(path: Path, text: str, reporter: Reporter) -> None:
    for match in _ANY.finditer(text):
        if not TOOL_PLACEHOLDER.fullmatch(match[0]):
            reporter.warning(
                path,
                f"{match[0]} stays as it is: it is no placeholder of a tool",
                "In answers of tools there are {{args.NAME}} and {{state.NAME}}",
                reason="not_expanded",
            )
            return
