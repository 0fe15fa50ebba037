"""From the tests of a configuration to cases: one for each test, or for each of its rows."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path as FilePath

from kindlm.checks.tools import ToolStrict
from kindlm.config.compile_targets import compile_words
from kindlm.config.compile_tools import compile_tool
from kindlm.config.expect import compile_expectations
from kindlm.config.files import ReferencedFiles
from kindlm.config.interpolation import render
from kindlm.config.places import Path
from kindlm.config.schema import KindlmConfig, PromptConfig, TestConfig
from kindlm.config.targets import targets_of
from kindlm.config.variables import row_name
from kindlm.errors import Ok, SourceLocation
from kindlm.suite import Case, Command, Expectation, Prompt, SimulatedTool


@dataclass(frozen=True, slots=True)
class CaseCompiler:
    """Compiles the tests of one configuration, whose references have been checked."""

    config: KindlmConfig
    folder: FilePath
    files: ReferencedFiles
    where: Callable[[Path], SourceLocation]

    def cases(self) -> tuple[Case, ...]:
        """Return all cases, in the order of the file and of the rows."""
        return tuple(
            case
            for index, test in enumerate(self.config.tests)
            for case in self._cases(test, ("tests", index))
        )

    def _cases(self, test: TestConfig, path: Path) -> Iterator[Case]:
        # Whatever the rows, these are the same: a suite of many rows holds them once.
        strict = self._is_strict(test)
        expectations = self._expectations(test, path, strict)
        tools = tuple(compile_tool(tool, self.files) for tool in test.tools)
        for name, variables in self._variables(test):
            yield self._case(test, path, name, variables, expectations, tools, strict)

    def _variables(self, test: TestConfig) -> Iterator[tuple[str, Mapping[str, str]]]:
        if test.vars_from is None:
            yield test.name, test.vars
            return
        rows = self.files.rows(test.vars_from)
        assert isinstance(rows, Ok), "references are checked before a suite is compiled"
        for row in rows.value.rows:
            yield row_name(test.name, row.id), {**test.vars, **row.values}

    def _case(
        self,
        test: TestConfig,
        path: Path,
        name: str,
        variables: Mapping[str, str],
        expectations: tuple[Expectation, ...],
        tools: tuple[SimulatedTool, ...],
        strict: bool,
    ) -> Case:
        defaults = self.config.defaults
        return Case(
            name=name,
            prompt=self._prompt(test, variables),
            targets=targets_of(test, self.config),
            expectations=expectations,
            tools=tools,
            follow_ups=tuple(render(turn.user, variables) for turn in test.conversation),
            command=self._command(test, variables),
            strict_tools=strict,
            repeat=test.repeat or defaults.repeat,
            pass_rate=defaults.pass_rate if test.pass_rate is None else test.pass_rate,
            max_turns=test.max_turns,
            tags=tuple(dict.fromkeys(test.tags)),
            skip=test.skip,
            where=self.where(path),
        )

    def _expectations(self, test: TestConfig, path: Path, strict: bool) -> tuple[Expectation, ...]:
        found = compile_expectations(test, path, self.files, self.where)
        if not strict:
            return found
        place = self.where((*path, "strictTools"))
        return (*found, ToolStrict().expected("strictTools", where=place))

    def _is_strict(self, test: TestConfig) -> bool:
        # A command calls tools of its own, none that are simulated.
        if test.command is not None:
            return False
        strict = test.strict_tools
        return self.config.defaults.strict_tools if strict is None else strict

    def _command(self, test: TestConfig, variables: Mapping[str, str]) -> Command | None:
        if test.command is None:
            return None
        # Split first: a variable is one argument, or a part of one, whatever is in it.
        words = tuple(render(word, variables) for word in compile_words(test.command))
        return Command(words, str(self.folder), reports_tools=bool(test.reports_tools))

    def _prompt(self, test: TestConfig, variables: Mapping[str, str]) -> Prompt:
        if test.prompt is None:
            return Prompt(user="")
        config = self.config.prompts[test.prompt]
        user, system, prefill = self._content(config)
        return Prompt(
            user=render(user or "", variables),
            system=None if system is None else render(system, variables),
            prefill=None if prefill is None else render(prefill, variables),
        )

    def _content(self, config: PromptConfig) -> tuple[str | None, str | None, str | None]:
        user = self._text(config.user, config.user_file)
        system = self._text(config.system, config.system_file)
        return user, system, config.assistant

    def _text(self, text: str | None, file: str | None) -> str | None:
        if file is None:
            return text
        content = self.files.text(file)
        assert isinstance(content, Ok), "references are checked before a suite is compiled"
        return content.value
