"""Evals of OpenAI: files of the open-source registry, and the JSON of the platform's Evals API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.generate.imported_tests import (
    EMBEDDED,
    JUDGED,
    PYTHON,
    STRIPPED,
    Checks,
    Tests,
    params_of,
    pattern_of,
    said_in,
    section_of,
)
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import Files, ImportedSuite, Notes, NoTwinError, Part, excerpt_of
from kindlm.strict_json import parse_json

TITLE = "OpenAI Evals"

_CHAT = {"user": "{{input}}"}
_WITH_SYSTEM = {"system": "{{system}}", **_CHAT}


def reads(document: Part) -> bool:
    """Tell whether a file is an eval of the registry or of the platform."""
    is_platform = document.get("testing_criteria") is not None
    return is_platform or any(each.text("class") for each in document.entries().values())


def read(document: Part, files: Files) -> ImportedSuite:
    """Read an eval; raise `NoTwinError` if no suite can be made of it."""
    reader = _Platform if document.get("testing_criteria") is not None else _Registry
    return reader(document, files).suite()


class _Reader:
    """What both forms share: each row is a test with variables for the same prompts."""

    def __init__(self, document: Part, files: Files) -> None:
        self.document, self.files = document, files
        self.notes = Notes()
        self.tests = Tests(self.notes)
        self.prompts: dict[str, dict[str, str]] = {}
        self.model: dict[str, Any] = {}

    def add(self, part: Part, name: str, section: Mapping[str, str], checks: Checks) -> None:
        """Add a test. What it says are values of variables, so that nothing in it is replaced."""
        prompt = "with-system" if "system" in section else "message"
        self.prompts[prompt] = _WITH_SYSTEM if "system" in section else _CHAT
        variables = {{"user": "input"}.get(role, role): text for role, text in section.items()}
        self.tests.add(part, [{"name": name, "prompt": prompt, "vars": variables}], checks)

    def finished(self, name: str, description: str | None) -> ImportedSuite:
        """Return the suite."""
        suite = {"name": name} | ({"description": description} if description else {})
        head: dict[str | Comment, Any] = {}
        if not self.model:
            what = "the eval names no model. Set `models` in the suite"
            self.notes.differ(self.document, what)
            head = {Comment("The eval names no model: set yours."): None}
        head |= {"models": [self.model or "openai/gpt-4o"], "prompts": self.prompts}
        title = f"Imported from {self.document.file} ({TITLE})."
        return self.tests.suite(title, suite, head)


# The registry


@dataclass(frozen=True, slots=True)
class Twin:
    """What a class or a grader is in kindlm.

    `make` adds the check to those of a test: from a sample and the arguments of its class, or from
    a grader and the row that it grades.
    """

    kindlm: str
    make: Callable[[Part, Any, Checks], None]
    different: str = ""


def _ideals(sample: Part) -> list[str]:
    ideal = sample.get("ideal")
    found = [] if ideal is None else [each.value for each in ideal.items()]
    if not found or not all(isinstance(each, str) and each for each in found):
        raise NoTwinError("an `ideal` that is not text")
    return found


def _match(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    checks.add_pattern(rf"\A{pattern_of(*_ideals(sample))}")


def _includes(sample: Part, arguments: Mapping[str, Any], checks: Checks) -> None:
    checks.add_text(*_ideals(sample), ignores_case=bool(arguments.get("ignore_case")))


def _fuzzy(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    checks.add_text(*_ideals(sample), ignores_case=True)


def _json_match(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    try:
        values = [parse_json(each) for each in _ideals(sample)]
    except ValueError:
        raise NoTwinError("an `ideal` that is not JSON") from None
    checks.add_schema({"enum": values} if len(values) > 1 else {"const": values[0]})


def _model_graded(sample: Part, arguments: Mapping[str, Any], checks: Checks) -> None:
    specification = str(arguments.get("modelgraded_spec")).rpartition("/")[2]
    given = arguments.get("modelgraded_spec_args")
    criterion: Any = None
    if specification == "fact":
        facts = "; or: ".join(_ideals(sample))
        criterion = f"The answer does not contradict this answer of an expert: {facts}"
    elif specification == "closedqa":
        criterion = given.get("criteria") if isinstance(given, Mapping) else sample.text("criteria")
    if not isinstance(criterion, str) or not criterion:
        what = f"the model-graded specification {excerpt_of(specification)}"
        raise NoTwinError(what, "Write its question as a criterion of `judge`")
    checks.add("judge", {"criteria": criterion})


CLASSES: dict[str, Twin] = {
    "Match": Twin("`output.regex` with `\\A`", _match),
    "Includes": Twin("`output.regex`, or `contains` with `ignore_case`", _includes),
    "FuzzyMatch": Twin(
        "`output.contains`",
        _fuzzy,
        "kindlm compares punctuation and articles, too, and an answer that is a part of the ideal"
        " one fails",
    ),
    "JsonMatch": Twin("`output.schema` with `const`", _json_match, "A JSON null can match, too"),
    "ModelBasedClassify": Twin(
        "`judge`, for the specifications `fact` and `closedqa`", _model_graded, JUDGED
    ),
}
"""The classes of the registry with a twin."""


class _Registry(_Reader):
    """Evals of the registry: YAML files that name a class and a file of samples."""

    def suite(self) -> ImportedSuite:
        evals = {name: part for name, part in self.document.entries().items() if part.text("class")}
        descriptions = [each.text("description") for each in self.document.entries().values()]
        for name, part in evals.items():
            try:
                self._read(name if len(evals) > 1 else "", part)
            except NoTwinError as error:
                self.notes.leave_out(part, f"the eval {name}: {error.what}", error.instead)
        name = next(iter(evals)).partition(".")[0]
        return self.finished(name, next(filter(None, descriptions), None))

    def _read(self, name: str, part: Part) -> None:
        kind = (part.text("class") or "").rpartition(":")[2]
        arguments = part.entries("args")
        given = {key: each.value for key, each in arguments.items()}
        twin, samples = CLASSES.get(kind), given.get("samples_jsonl")
        if twin is None:
            raise NoTwinError(f"the class {kind}", PYTHON)
        if given.get("num_few_shot"):
            raise NoTwinError("`num_few_shot`", "Write the examples into the system text")
        if not isinstance(samples, str) or "://" in samples:
            raise NoTwinError("samples that are no file", "Download them into a file")
        for key, each in arguments.items():
            if key not in _ARGUMENTS:
                self.notes.leave_out(each, f"`{key}`")
        if twin.different:
            self.notes.differ(part, f"`{kind}`. {twin.different}")
        # The registry keeps samples in the folder `data` beside `evals`.
        here = self.files.folder
        in_registry = here.resolve().name == "evals" and (here / "../data").is_dir()
        files = Files(here / "../data") if in_registry else self.files
        for number, sample in enumerate(files.part(samples).items(), start=1):
            checks = Checks()
            try:
                said = sample.get("input")
                section = section_of(None if said is None else said.value)
            except NoTwinError as error:
                self.tests.lose(sample, NoTwinError(f"a sample with {error.what}", error.instead))
                continue
            try:
                twin.make(sample, given, checks)
            except NoTwinError as error:
                self.notes.leave_out(sample, error)
            self.add(sample, f"{name} sample {number}".strip(), section, checks)


_ARGUMENTS = {"samples_jsonl", "ignore_case", "modelgraded_spec", "modelgraded_spec_args"}
_ARGUMENTS |= {"max_tokens", "num_few_shot", "few_shot_jsonl", "eval_type"}


# The platform

_ANSWER = re.compile(r"\{\{\s*sample\.output_text\s*\}\}")
_VARIABLE = re.compile(r"\{\{\s*([\w.\[\]\"'-]+)\s*\}\}")


@dataclass(frozen=True, slots=True)
class _Row:
    """A row of the data: `item` is what the templates of the eval name."""

    part: Part
    item: Mapping[str, Any]

    def fill(self, template: str, answer: str | None = None) -> str:
        """Return a template filled in; `answer` stands for the answer, which is not there yet.

        Raises:
            NoTwinError: It names something else.
        """

        def value(found: re.Match[str]) -> str:
            if answer is not None and _ANSWER.fullmatch(found[0]):
                return answer
            value: Any = {"item": self.item}
            for key in found[1].split("."):
                value = value.get(key) if isinstance(value, Mapping) else None
            if value is None or isinstance(value, Mapping | list):
                what = f"the template {excerpt_of(found[0])}"
                raise NoTwinError(what, "Name a text of the row")
            return value if isinstance(value, str) else str(value).lower()

        return _VARIABLE.sub(value, template)


def _reference(grader: Part, row: _Row) -> str:
    if not _ANSWER.fullmatch(grader.text("input") or ""):
        raise NoTwinError("a check of something else than `{{sample.output_text}}`", PYTHON)
    return row.fill(grader.text("reference") or "")


def _string_check(grader: Part, row: _Row, checks: Checks) -> None:
    operation = grader.text("operation")
    reference = _reference(grader, row)
    if operation in ("eq", "ne"):
        checks.add_equal(reference, negated=operation == "ne")
    elif operation in ("like", "ilike"):
        checks.add_text(reference, ignores_case=operation == "ilike")
    else:
        raise NoTwinError(f"the operation {excerpt_of(operation)}", PYTHON)


def _text_similarity(grader: Part, row: _Row, checks: Checks) -> None:
    if grader.text("evaluation_metric") != "cosine":
        raise NoTwinError(f"the metric `{grader.text('evaluation_metric')}`", PYTHON)
    checks.add_similar(_reference(grader, row), grader.number("pass_threshold"))


def _instructions(grader: Part, row: _Row) -> str:
    contents = (each.get("content") for each in grader.items("input"))
    said = [said_in(part.value) for part in contents if part is not None]
    if not said:
        raise NoTwinError("a grader without instructions")
    return "\n\n".join(row.fill(each, "(the agent's last answer)") for each in said)


def _label_model(grader: Part, row: _Row, checks: Checks) -> None:
    passing = ", ".join(str(each.value) for each in grader.items("passing_labels"))
    criterion = f"By these instructions, the label is one of: {passing}.\n\n"
    checks.add("judge", {"criteria": criterion + _instructions(grader, row)})


def _score_model(grader: Part, row: _Row, checks: Checks) -> None:
    ends = [each.value for each in grader.items("range")] or [0, 1]
    threshold = grader.number("pass_threshold")
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends) or ends[0] >= ends[1]:
        raise NoTwinError("a `range` without two ends", "Write it as [0, 1]")
    low, high = ends
    judge: dict[str, Any] = {"criteria": _instructions(grader, row)}
    if threshold is not None:
        judge["minScore"] = round(min(max((threshold - low) / (high - low), 0), 1), 6)
    checks.add("judge", judge)


GRADERS: dict[str, Twin] = {
    "string_check": Twin(
        "`output.equals` (`eq`), `notRegex` (`ne`), `regex` (`like`) or `contains` (`ilike`)",
        _string_check,
        STRIPPED,
    ),
    "text_similarity": Twin(
        "`output.similarTo`, for the metric `cosine`",
        _text_similarity,
        EMBEDDED,
    ),
    "label_model": Twin("`judge`", _label_model, JUDGED),
    "score_model": Twin("`judge` with `minScore`", _score_model, JUDGED),
}
"""The graders of the platform with a twin."""


class _Platform(_Reader):
    """An eval of the platform with the data source of a run: JSON."""

    def suite(self) -> ImportedSuite:
        source = self.document.get("data_source")
        if source is None:
            raise NoTwinError("no data of a run", "Add the `data_source` of a run to the file")
        model = source.text("model")
        if model:
            params = params_of(source.entries("sampling_params"), self.notes)
            self.model = {"id": model, "provider": "openai", "model": model}
            self.model |= {"params": params} if params else {}
        for number, row in enumerate(self._rows(source), start=1):
            try:
                section = self._section(source, row)
            except NoTwinError as error:
                self.tests.lose(row.part, NoTwinError(f"a row with {error.what}", error.instead))
                continue
            checks = Checks()
            for grader in self.document.items("testing_criteria"):
                self._grade(grader, row, checks)
            self.add(row.part, f"row {number}", section, checks)
        return self.finished(self.document.text("name") or "eval", None)

    def _rows(self, source: Part) -> Iterator[_Row]:
        content = source.get("source") or source
        rows = content.get("content")
        if content.text("type") == "file_id":
            rows = self.files.part(f"{content.text('id')}.jsonl")
        if rows is None:
            what = f"the source {excerpt_of(content.text('type'))}"
            raise NoTwinError(what, "Write the rows as `file_content`")
        for part in rows.items():
            item = part.get("item")
            yield _Row(part, item.value if item is not None else part.value)

    def _section(self, source: Part, row: _Row) -> dict[str, str]:
        messages = source.get("input_messages")
        template = None if messages is None else messages.get("template")
        if template is None:
            raise NoTwinError("no `template` of `input_messages`", "Write the messages as one")
        return {role: row.fill(text) for role, text in section_of(template.value).items()}

    def _grade(self, grader: Part, row: _Row, checks: Checks) -> None:
        kind = grader.text("type") or ""
        if kind not in GRADERS:
            self.notes.leave_out(grader, f"the grader `{kind}`", PYTHON)
            return
        try:
            GRADERS[kind].make(grader, row, checks)
        except NoTwinError as error:
            self.notes.leave_out(grader, error)
            return
        if GRADERS[kind].different:
            self.notes.differ(grader, f"`{kind}`. {GRADERS[kind].different}")
