"""Evals of OpenAI: files of the open-source registry, and the JSON of the platform's Evals API."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from kindlm.generate.imported_tests import (
    PARAMETERS,
    Checks,
    Tests,
    add_parameter,
    any_of,
    head_comments,
    said_in,
    section_of,
)
from kindlm.generate.suite_text import Comment
from kindlm.generate.suites import Files, ImportedSuite, Notes, NoTwinError, Part, excerpt_of
from kindlm.strict_json import parse_json

TITLE = "OpenAI Evals"

_DEFAULT_MODEL = "openai/gpt-4o"
_CHAT = {"user": "{{input}}"}
_WITH_SYSTEM = {"system": "{{system}}", **_CHAT}

_PYTHON = "Write a function: `python: checks.py:NAME`"
_JUDGED = "A judge of kindlm scores from 0 to 1; 0.7 passes"


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
        self.model: Any = _DEFAULT_MODEL

    def add(self, part: Part, name: str, section: Mapping[str, str], checks: Checks) -> None:
        """Add a test. What it says are values of variables, so that nothing in it is replaced."""
        prompt = "with-system" if "system" in section else "message"
        self.prompts[prompt] = _WITH_SYSTEM if "system" in section else _CHAT
        said = {"system": section.get("system"), "input": section["user"]}
        if "assistant" in section:
            raise NoTwinError("the beginning of an answer", "Remove it")
        variables = {key: text for key, text in said.items() if text is not None}
        self.tests.add(part, [{"name": name, "prompt": prompt, "vars": variables}], checks)

    def finished(self, name: str, description: str | None) -> ImportedSuite:
        """Return the suite."""
        title = f"Imported from {self.document.file} ({TITLE})."
        head: dict[str | Comment, Any] = dict.fromkeys(head_comments(self.notes, title))
        suite = {"name": name} | ({"description": description} if description else {})
        head |= {"kindlm": 1, "suite": suite}
        if self.model == _DEFAULT_MODEL:
            self.notes.different(
                self.document, "the eval names no model", "Set `models` in the suite"
            )
            head |= {Comment("The eval names no model: set yours."): None}
        head |= {"models": [self.model], "prompts": self.prompts}
        return self.tests.suite(head)


# The registry


@dataclass(frozen=True, slots=True)
class Twin:
    """What a class or a grader is in kindlm; `make` adds the check to those of a test."""

    kindlm: str
    make: Callable[[Part, Mapping[str, Any], Checks], None]
    different: str = ""


def _ideals(sample: Part) -> list[str]:
    ideal = sample.get("ideal")
    found = [] if ideal is None else [each.value for each in ideal.items()]
    if not found or not all(isinstance(each, str) and each for each in found):
        raise NoTwinError("an `ideal` that is not text", "Write the check yourself")
    return found


def _match(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    checks.add_pattern(rf"\A{any_of(_ideals(sample))}")


def _includes(sample: Part, arguments: Mapping[str, Any], checks: Checks) -> None:
    checks.add_any_text(_ideals(sample), ignores_case=bool(arguments.get("ignore_case")))


def _fuzzy(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    checks.add_any_text(_ideals(sample), ignores_case=True)


def _json_match(sample: Part, _: Mapping[str, Any], checks: Checks) -> None:
    try:
        values = [parse_json(each) for each in _ideals(sample)]
    except ValueError:
        raise NoTwinError("an `ideal` that is not JSON", "Correct it") from None
    checks.add_schema({"enum": values} if len(values) > 1 else {"const": values[0]})


def _model_graded(sample: Part, arguments: Mapping[str, Any], checks: Checks) -> None:
    specification = str(arguments.get("modelgraded_spec"))
    if specification.rpartition("/")[2] == "fact":
        facts = "; or: ".join(_ideals(sample))
        criterion = f"The answer does not contradict this answer of an expert: {facts}"
    elif specification.rpartition("/")[2] == "closedqa":
        given = arguments.get("modelgraded_spec_args")
        criterion = sample.text("criteria") or ""
        if isinstance(given, Mapping) and isinstance(given.get("criteria"), str):
            criterion = given["criteria"]
    else:
        criterion = ""
    if not criterion:
        what = f"the model-graded specification {excerpt_of(specification)}"
        raise NoTwinError(what, "Write its question as a criterion of `judge`")
    checks.judge.append({"criteria": criterion})


CLASSES: dict[str, Twin] = {
    "Match": Twin("`output.regex` with `\\A`", _match),
    "Includes": Twin("`output.regex`, or `output.containsAny` with `ignore_case`", _includes),
    "FuzzyMatch": Twin(
        "`output.containsAny`",
        _fuzzy,
        "kindlm compares punctuation and articles, too, and an answer that is a part of the ideal"
        " one fails",
    ),
    "JsonMatch": Twin("`output.schema` with `const`", _json_match, "A JSON null can match, too"),
    "ModelBasedClassify": Twin(
        "`judge`, for the specifications `fact` and `closedqa`", _model_graded, _JUDGED
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
                self.notes.left_out(part, f"the eval {name}: {error.what}", error.instead)
        name = next(iter(evals)).partition(".")[0]
        return self.finished(name, next(filter(None, descriptions), None))

    def _read(self, name: str, part: Part) -> None:
        kind = (part.text("class") or "").rpartition(":")[2]
        arguments = part.entries("args")
        given = {key: each.value for key, each in arguments.items()}
        twin = CLASSES.get(kind)
        if twin is None:
            raise NoTwinError(f"the class {kind}", _PYTHON)
        if given.get("num_few_shot"):
            what = "examples before the question (`num_few_shot`)"
            raise NoTwinError(what, "Write them into the system text")
        for key, each in arguments.items():
            if key not in _ARGUMENTS:
                self.notes.left_out(each, f"`{key}`", "kindlm has no such option")
        if twin.different:
            self.notes.different(part, f"`{kind}`", twin.different)
        samples = given.get("samples_jsonl")
        if not isinstance(samples, str) or "://" in samples:
            raise NoTwinError("samples that are no file", "Download them into a file")
        for number, sample in enumerate(self._samples(samples).items(), start=1):
            self.tests.found += 1
            checks = Checks()
            try:
                section = _section(sample.get("input"))
            except NoTwinError as error:
                self.notes.left_out(sample, f"a sample with {error.what}", error.instead)
                self.notes.take()
                continue
            try:
                twin.make(sample, given, checks)
            except NoTwinError as error:
                self.notes.left_out(sample, error.what, error.instead)
            self.add(sample, f"{name} sample {number}".strip(), section, checks)

    def _samples(self, name: str) -> Part:
        """Return the samples: the registry keeps them in the folder `data` beside `evals`."""
        here = self.files.folder
        in_registry = here.resolve().name == "evals" and (here / "../data").is_dir()
        return (Files(here / "../data") if in_registry else self.files).part(name)


_ARGUMENTS = {"samples_jsonl", "ignore_case", "modelgraded_spec", "modelgraded_spec_args"}
_ARGUMENTS |= {"max_tokens", "num_few_shot", "few_shot_jsonl", "eval_type"}


def _section(part: Part | None) -> dict[str, str]:
    """Return what a sample says: a text, or messages."""
    if part is None:
        raise NoTwinError("no `input`", "Add one")
    if isinstance(part.value, str):
        return {"user": part.value}
    messages = [each.value for each in part.items()]
    if not all(isinstance(each, dict) for each in messages):
        raise NoTwinError("an `input` that is no chat", "Write it as messages")
    return section_of(messages)


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


def _reference(grader: Part, row: Mapping[str, Any]) -> str:
    if not _ANSWER.fullmatch(grader.text("input") or ""):
        what = "a check of something else than `{{sample.output_text}}`"
        raise NoTwinError(what, _PYTHON)
    filled: Callable[[str], str] = row["fill"]
    return filled(grader.text("reference") or "")


def _string_check(grader: Part, row: Mapping[str, Any], checks: Checks) -> None:
    operation = grader.text("operation")
    reference = _reference(grader, row)
    if operation == "eq":
        checks.add_equal(reference)
    elif operation == "ne":
        checks.add_equal(reference, negated=True)
    elif operation in ("like", "ilike"):
        checks.add_text(reference, ignores_case=operation == "ilike")
    else:
        raise NoTwinError(f"the operation {excerpt_of(operation)}", _PYTHON)


def _text_similarity(grader: Part, row: Mapping[str, Any], checks: Checks) -> None:
    metric = grader.text("evaluation_metric")
    if metric != "cosine":
        what = f"the metric `{metric}`"
        raise NoTwinError(what, "Write `output.similarTo`, or a function")
    threshold = grader.number("pass_threshold")
    similar: dict[str, Any] = {"text": _reference(grader, row)}
    if threshold is not None:
        similar["minScore"] = min(max(threshold, 0), 1)
    checks.add_only("similar", similar)


def _instructions(grader: Part, row: Mapping[str, Any]) -> str:
    filled: Callable[[str, str], str] = row["fill"]
    contents = (each.get("content") for each in grader.items("input"))
    said = [said_in(part.value) for part in contents if part is not None]
    if not said:
        raise NoTwinError("a grader without instructions", "Write a `judge` with a criterion")
    return "\n\n".join(filled(each, "(the agent's last answer)") for each in said)


def _label_model(grader: Part, row: Mapping[str, Any], checks: Checks) -> None:
    passing = ", ".join(str(each.value) for each in grader.items("passing_labels"))
    criterion = f"By these instructions, the label is one of: {passing}.\n\n"
    checks.judge.append({"criteria": criterion + _instructions(grader, row)})


def _score_model(grader: Part, row: Mapping[str, Any], checks: Checks) -> None:
    ends = [each.value for each in grader.items("range")] or [0, 1]
    threshold = grader.number("pass_threshold")
    if len(ends) != 2 or not all(type(end) in (int, float) for end in ends) or ends[0] >= ends[1]:
        raise NoTwinError("a `range` without two ends", "Write it as [0, 1]")
    low, high = ends
    judge: dict[str, Any] = {"criteria": _instructions(grader, row)}
    if threshold is not None:
        judge["minScore"] = round(min(max((threshold - low) / (high - low), 0), 1), 6)
    checks.judge.append(judge)


GRADERS: dict[str, Twin] = {
    "string_check": Twin(
        "`output.equals` (`eq`), `notRegex` (`ne`), `regex` (`like`) or `contains` (`ilike`)",
        _string_check,
        "kindlm ignores white space around an answer that has to be equal",
    ),
    "text_similarity": Twin(
        "`output.similarTo`, for the metric `cosine`",
        _text_similarity,
        "The embeddings are those of kindlm, so the same threshold may mean something else",
    ),
    "label_model": Twin("`judge`", _label_model, _JUDGED),
    "score_model": Twin("`judge` with `minScore`", _score_model, _JUDGED),
}
"""The graders of the platform with a twin."""


class _Platform(_Reader):
    """An eval of the platform with the data source of a run: JSON."""

    def suite(self) -> ImportedSuite:
        source = self._source()
        self._set_model(source)
        graders = self.document.get("testing_criteria")
        assert graders is not None, "the eval was recognised by it"
        for number, row in enumerate(self._rows(source), start=1):
            self.tests.found += 1
            try:
                section = self._section(source, row)
            except NoTwinError as error:
                self.notes.left_out(row.part, f"a row with {error.what}", error.instead)
                self.notes.take()
                continue
            checks = Checks()
            for grader in graders.items():
                self._grade(grader, row, checks)
            self.add(row.part, f"row {number}", section, checks)
        return self.finished(self.document.text("name") or "eval", None)

    def _source(self) -> Part:
        """Return the data source: of the document, or of the run in it."""
        runs = [*self.document.items("run"), *self.document.items("runs")]
        written = (each.get("data_source") for each in (self.document, *runs))
        found = [each for each in written if each is not None]
        if not found:
            raise NoTwinError("no data of a run", "Add the `data_source` of a run to the file")
        for other in found[1:]:
            self.notes.left_out(other, "the data of another run", "Import it from its own file")
        return found[0]

    def _set_model(self, source: Part) -> None:
        model = source.text("model")
        if not model:
            return
        params: dict[str, Any] = {}
        for key, part in source.entries("sampling_params").items():
            if key in PARAMETERS:
                add_parameter(part, key, params, self.notes)
            else:
                self.notes.left_out(part, f"`{key}`", "kindlm sends no such option")
        self.model = {"id": model, "provider": "openai", "model": model}
        self.model |= {"params": params} if params else {}

    def _rows(self, source: Part) -> Iterator[_Row]:
        content = source.get("source") or source
        rows = content.get("content")
        if content.text("type") == "file_id":
            name = f"{content.text('id')}.jsonl"
            try:
                rows = self.files.part(name)
            except NoTwinError:
                raise NoTwinError("rows in a file of the platform", f"Save it as {name}") from None
        if rows is None:
            what = f"the source {excerpt_of(content.text('type'))}"
            raise NoTwinError(what, "Write the rows as `file_content`")
        for part in rows.items():
            item = part.get("item")
            yield _Row(part, item.value if item is not None else part.value)

    def _section(self, source: Part, row: _Row) -> dict[str, str]:
        messages = source.get("input_messages")
        if messages is None:
            raise NoTwinError("answers that are recorded already", "Add `input_messages`")
        reference = messages.text("item_reference")
        if reference is not None:
            found: Any = {"item": row.item}
            for key in reference.split("."):
                found = found.get(key) if isinstance(found, Mapping) else None
            return _section(Part(found, row.part.file, row.part.line_of, row.part.keys))
        template = (each.value for each in messages.items("template"))
        section = section_of([each for each in template if isinstance(each, dict)])
        return {role: row.fill(text) for role, text in section.items()}

    def _grade(self, grader: Part, row: _Row, checks: Checks) -> None:
        kind = grader.text("type") or ""
        twin = GRADERS.get(kind)
        if twin is None:
            self.notes.left_out(grader, f"the grader `{kind}`", _PYTHON)
            return
        try:
            twin.make(grader, {"fill": row.fill}, checks)
        except NoTwinError as error:
            self.notes.left_out(grader, error.what, error.instead)
            return
        if twin.different:
            self.notes.different(grader, f"`{kind}`", twin.different)
