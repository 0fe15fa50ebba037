"""An eval of OpenAI becomes a suite in which the same answers pass and fail."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import yaml
from evaluated import evaluated, nobody

from kindlm.config import load_suite
from kindlm.errors import Ok
from kindlm.generate.imported_tests import ImportedSuite
from kindlm.generate.suite_text import suite_text
from kindlm.generate.suites import Files, LeftOutError, format_named, read_part
from kindlm.outcome import Outcome
from kindlm.suite import Case
from kindlm.transcript import Step, Transcript, Turn


def read(document: dict[str, Any], file: Path) -> ImportedSuite:
    text = json.dumps(document) if file.suffix == ".json" else yaml.safe_dump(document)
    part = read_part(file.name, text.encode())
    assert isinstance(part, Ok), part
    form = format_named("openai-evals")
    assert form.reads(part.value)
    return form.read(part.value, Files(file.parent))


def cases(imported: ImportedSuite, folder: Path) -> tuple[Case, ...]:
    text = suite_text(imported.document, folder / "kindlm.yaml")
    assert isinstance(text, Ok), text
    suite = load_suite(folder / "kindlm.yaml", text=text.value.encode()).suite
    assert suite is not None
    return suite.cases


def passes(case: Case, text: str) -> bool:
    transcript = Transcript(turns=(Turn("", (Step(text),)),))
    results = [evaluated(each, transcript, nobody) for each in case.expectations]
    return bool(results) and all(result.outcome is Outcome.PASSED for result in results)


def registry(kind: str, samples: list[dict[str, Any]], folder: Path, **arguments: Any) -> Any:
    """Write a registry with one eval, and read it."""
    (folder / "evals").mkdir()
    (folder / "data/cities").mkdir(parents=True)
    lines = "\n".join(map(json.dumps, samples))
    (folder / "data/cities/samples.jsonl").write_text(lines)
    given = {"samples_jsonl": "cities/samples.jsonl", **arguments}
    document = {
        "cities": {"id": "cities.v0", "description": "Cities"},
        "cities.v0": {"class": f"evals.elsuite.basic.x:{kind}", "args": given},
    }
    return read(document, folder / "evals/cities.yaml")


@pytest.mark.parametrize(
    ("kind", "arguments", "ideal", "right", "wrong"),
    [
        ("Match", {}, "Rome (it)", ["Rome (it)", "Rome (it)."], ["In Rome (it)", "rome (it)"]),
        ("Match", {}, ["Rome", "Roma"], ["Roma!"], ["Rom", "In Rome"]),
        ("Includes", {}, ["Rome", "Roma"], ["In Rome.", "Roma"], ["in rome"]),
        ("Includes", {"ignore_case": True}, "Rome", ["in rome"], ["Paris"]),
        ("FuzzyMatch", {}, "Rome", ["The ROME."], ["Paris"]),
        ("JsonMatch", {}, '{"a": [1, 2]}', ['{"a": [1, 2]}'], ['{"a": [2, 1]}', "a"]),
        ("JsonMatch", {}, ["1", '"b"'], ["1", '"b"'], ["b", "2"]),
    ],
)
def test_the_same_answers_match_in_an_eval_of_the_registry(
    kind: str, arguments: Any, ideal: Any, right: list[str], wrong: list[str], tmp_path: Path
) -> None:
    sample = {"input": "Which {{env.HOME}}? {a}", "ideal": ideal}
    (case,) = cases(registry(kind, [sample], tmp_path, **arguments), tmp_path)
    assert case.prompt.user == "Which {{env.HOME}}? {a}"
    assert [passes(case, text) for text in right] == [True] * len(right)
    assert [passes(case, text) for text in wrong] == [False] * len(wrong)


def test_samples_and_classes_without_an_equivalent_are_named(tmp_path: Path) -> None:
    chat = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Where?"}]
    samples = [
        {"input": chat, "ideal": "Rome"},
        {"input": [*chat, {"role": "assistant", "content": "?"}, chat[1]], "ideal": "Rome"},
        {"input": "a", "ideal": ""},
    ]
    imported = registry("Match", samples, tmp_path, max_tokens=5, temperature=1)
    first, last = cases(imported, tmp_path)
    assert (first.prompt.system, first.prompt.user) == ("Be brief.", "Where?")
    assert last.skip
    assert (imported.tests, imported.imported, imported.skipped) == (3, 1, 1)
    said = {next(iter(places)): it for it, places in imported.left_out.items()}
    assert said["../data/cities/samples.jsonl:2"].startswith("a row with messages other than")
    assert said["../data/cities/samples.jsonl:3"] == "an `ideal` that is not text."
    for document in (
        {"a.v0": {"class": "x:Translate", "args": {"samples_jsonl": "cities/samples.jsonl"}}},
        {"a.v0": {"class": "x:Match", "args": {"samples_jsonl": "../evals/cities.yaml"}}},
        {"a.v0": {"class": "x:Match", "args": {"samples_jsonl": "https://x.example/a.jsonl"}}},
    ):
        with pytest.raises(LeftOutError, match="no test"):
            read(document, tmp_path / "evals/a.yaml")


GRADER = {"type": "string_check", "name": "n", "input": "{{ sample.output_text }}"}


def platform(*graders: dict[str, Any], **source: Any) -> dict[str, Any]:
    messages = [
        {"role": "developer", "content": {"type": "input_text", "text": "Label {{item.kind}}."}},
        {"role": "user", "content": "{{item.text}}"},
    ]
    rows = [{"item": {"kind": "tickets", "text": "{{item.kind}} é \U0001f600", "label": "Bill"}}]
    data_source = {
        "type": "completions",
        "model": "gpt-4o-mini",
        "sampling_params": {"temperature": 0, "max_completion_tokens": 50},
        "input_messages": {"type": "template", "template": messages},
        "source": {"type": "file_content", "content": rows},
        **source,
    }
    return {"name": "Tickets", "testing_criteria": graders, "data_source": data_source}


@pytest.mark.parametrize(
    ("operation", "right", "wrong"),
    [
        ("eq", ["Bill"], ["bill", "Bill."]),
        ("ne", ["bill", "Bill."], ["Bill"]),
        ("like", ["A Bill."], ["a bill"]),
        ("ilike", ["a bill"], ["b"]),
    ],
)
def test_a_string_check_of_the_platform_keeps_its_operation(
    operation: str, right: list[str], wrong: list[str], tmp_path: Path
) -> None:
    grader = {**GRADER, "operation": operation, "reference": "{{item.label}}"}
    imported = read(platform(grader), tmp_path / "eval.json")
    (case,) = cases(imported, tmp_path)
    assert (case.prompt.system, case.prompt.user) == (
        "Label tickets.",
        "{{item.kind}} é \U0001f600",
    )
    assert all(passes(case, text) for text in right)
    assert not any(passes(case, text) for text in wrong)
    assert imported.document["models"] == [
        {
            "id": "gpt-4o-mini",
            "provider": "openai",
            "model": "gpt-4o-mini",
            "params": {"temperature": 0, "maxTokens": 50},
        }
    ]


def test_graders_become_judges_and_others_are_named(tmp_path: Path) -> None:
    asked = [{"role": "system", "content": "Rate {{sample.output_text}} for {{item.text}}"}]
    graders = [
        {"type": "label_model", "input": asked, "labels": ["a", "b"], "passing_labels": ["a"]},
        {"type": "score_model", "input": asked, "range": [1, 5], "pass_threshold": 4},
        {"type": "text_similarity", "evaluation_metric": "cosine", "pass_threshold": 0.9}
        | {"input": GRADER["input"], "reference": "{{item.label}}"},
        {"type": "text_similarity", "evaluation_metric": "bleu", "input": GRADER["input"]}
        | {"reference": "x"},
        {"type": "python", "source": "import os"},
        {"type": "label_model", "input": asked, "passing_labels": []},
        {"type": "score_model", "input": {"content": " "}},
        {"type": "score_model", "input": asked, "range": [1, 5], "pass_threshold": 1},
        {**GRADER, "operation": "ne", "reference": "{{item.label | upper}}"},
        {**GRADER, "input": "{{item.text}}", "operation": "eq", "reference": "x"},
        {**GRADER, "operation": "ne", "reference": 5},
    ]
    imported = read(platform(*graders), tmp_path / "eval.json")
    (case,) = cases(imported, tmp_path)
    assert [each.kind for each in case.expectations] == ["similar_to", "judge", "judge"]
    expect = imported.document["tests"][0]["expect"]
    asked_for = "Rate (the agent's last answer) for {{item.kind}} é \U0001f600"
    assert expect["judge"][0]["criteria"].endswith(asked_for)
    assert expect["judge"][1] == {"criteria": asked_for, "minScore": 0.75}
    assert [it.partition(".")[0] for it in imported.left_out] == [
        "the metric `bleu`",
        "the grader `python`",
        "a grader without `passing_labels`",
        "a grader without instructions",
        "a threshold that every score reaches",
        "the template {{item",
        "a check of something else than `{{sample",
        "a `reference` that is not text",
    ]


def test_a_graded_eval_of_the_registry_becomes_a_judge(tmp_path: Path) -> None:
    criteria = {"modelgraded_spec": "closedqa", "modelgraded_spec_args": {"criteria": "Is short."}}
    imported = registry("ModelBasedClassify", [{"input": "a"}], tmp_path, **criteria)
    assert imported.document["tests"][0]["expect"] == {"judge": [{"criteria": "Is short."}]}
    (case,) = cases(imported, tmp_path)
    assert not case.skip


def test_rows_of_the_platform_are_read_from_a_file_beside_the_eval(tmp_path: Path) -> None:
    grader = {**GRADER, "operation": "eq", "reference": "x"}
    source = {"type": "file_id", "id": "file-1"}
    with pytest.raises(LeftOutError, match=r"file-1\.jsonl"):
        read(platform(grader, source=source), tmp_path / "eval.json")
    (tmp_path / "file-1.jsonl").write_text('{"item": {"kind": "k", "text": "Hi"}}')
    (case,) = cases(read(platform(grader, source=source), tmp_path / "eval.json"), tmp_path)
    assert case.prompt.user == "Hi"
    with pytest.raises(LeftOutError, match="no data of a run"):
        read({"testing_criteria": [grader]}, tmp_path / "eval.json")
