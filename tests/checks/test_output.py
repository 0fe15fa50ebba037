"""Checks of the final text."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import pytest
from evaluated import demand, evaluated, nobody
from hypothesis import given
from hypothesis import strategies as st
from scripted_judge import Judge

from kindlm.errors import Ok, Result
from kindlm.outcome import CheckResult, Evidence, Outcome
from kindlm.ports import Ask, CheckContext, Embed, Embedding
from kindlm.transcript import Step, Transcript, Turn

Evaluate = Callable[..., CheckResult]
Said = Callable[..., Transcript]

NAMED = {"type": "object", "properties": {"name": {"type": "string"}}, "required": ["name"]}


def embedding(*vectors: Sequence[float]) -> Embed:
    async def embed(texts: Sequence[str]) -> Result[tuple[Embedding, str]]:
        return Ok((Embedding(tuple(map(tuple, vectors)), 1.0), "openai/small"))

    return embed


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    """A port of this machine where any attempt to connect is seen."""
    with socket.create_server(("127.0.0.1", 0)) as server:
        server.setblocking(False)
        yield server


def schema_result(evaluate: Evaluate, said: Said, schema: Any, text: str) -> CheckResult:
    return evaluate("schema", {"schema": schema, "schemaFile": "s.json"}, said(text))


@pytest.mark.parametrize(
    ("kind", "wanted", "answer", "is_alike"),
    [
        ("equals", "5 EUR", "5\u00a0EUR", True),
        ("contains", "caf\u00e9", "The cafe\u0301 is open.", True),
        ("starts_with", "pre\u2011paid", "Pre-paid orders", True),
        ("contains", "refund", "re\u200bfund", True),
        ("contains", "refund", "caf\u00e9", False),
        ("matches", "a b", "a\u00a0b", False),
    ],
)
def test_a_text_that_only_looks_like_the_expected_one_is_said_to(
    evaluate: Evaluate, said: Said, kind: str, wanted: str, answer: str, is_alike: bool
) -> None:
    result = evaluate(kind, {"text": wanted}, said(answer))

    assert result.outcome is Outcome.FAILED
    assert ("characters that Unicode treats as the same" in result.message) is is_alike


class TestSchema:
    @pytest.mark.parametrize(
        ("schema", "text"),
        [
            (None, "null"),
            (NAMED, '\n {"name":"x", "more": 1} \n'),
            ({"properties": {"e": {"format": "email"}}}, '{"e": "a@b.example"}'),
            (True, "1"),
        ],
    )
    def test_json_that_fits_its_schema_passes(
        self, evaluate: Evaluate, said: Said, schema: Any, text: str
    ) -> None:
        result = schema_result(evaluate, said, schema, text)

        assert result.outcome is Outcome.PASSED
        assert result.score == 1.0
        assert result.message == ""

    @pytest.mark.parametrize(
        "text",
        [
            *("", "not json", '{"a": NaN}', '{"a": 1} and more', "{'a': 1}", "[" * 100_000),
            *("9" * 5_000, '{"name": 1, "name": "x"}'),
        ],
    )
    def test_what_is_no_json_is_a_parse_error(
        self, evaluate: Evaluate, said: Said, text: str
    ) -> None:
        result = schema_result(evaluate, said, NAMED, text)

        assert result.outcome is Outcome.FAILED
        assert result.failure_code == "SCHEMA_PARSE_ERROR"
        assert result.score == 0.0
        assert len(result.message) <= 1_000

    @pytest.mark.parametrize("fence", ["```", "````", "~~~"])
    def test_one_code_fence_is_taken_away_and_noted(
        self, evaluate: Evaluate, said: Said, fence: str
    ) -> None:
        result = schema_result(evaluate, said, NAMED, f'{fence}json\n{{"name": "x"}}\n{fence}\n')

        assert result.outcome is Outcome.PASSED
        assert "code fence" in result.message

    @pytest.mark.parametrize(
        "text",
        [
            'Here you are:\n```json\n{"name": "x"}\n```',
            '```json\n{"name": "x"}\n```\nAnything else?',
            '```\n```json\n{"name": "x"}\n```\n```',
            '```json\n{"name": "x"}',
        ],
    )
    def test_text_around_a_fence_is_no_json(
        self, evaluate: Evaluate, said: Said, text: str
    ) -> None:
        result = schema_result(evaluate, said, NAMED, text)

        assert result.failure_code == "SCHEMA_PARSE_ERROR"

    def test_all_places_that_do_not_fit_are_listed(self, evaluate: Evaluate, said: Said) -> None:
        schema = {
            "properties": {"e": {"format": "email"}, "n": {"items": {"type": "integer"}}},
            "required": ["id"],
            "additionalProperties": False,
        }

        result = schema_result(evaluate, said, schema, '{"e": "nope", "n": [1, "2"], "z": 0}')

        assert result.failure_code == "SCHEMA_INVALID"
        assert sorted(issue["path"] for issue in result.actual) == ["$", "$", "$.e", "$.n[1]"]
        assert "s.json" in result.message
        assert "$.n[1]" in result.message

    def test_a_remote_reference_is_never_fetched(
        self, evaluate: Evaluate, said: Said, listener: socket.socket
    ) -> None:
        host, port = listener.getsockname()

        result = schema_result(evaluate, said, {"$ref": f"http://{host}:{port}/s.json"}, "1")

        with pytest.raises(BlockingIOError):
            listener.accept()
        assert result.outcome is Outcome.INCONCLUSIVE
        assert result.failure_code == "ASSERTION_EVAL_ERROR"
        assert "refers to" in result.message


class TestSubstrings:
    @pytest.mark.parametrize(
        ("text", "output", "contained"),
        [
            ("hello", "Hello World", True),
            ("WORLD", "hello world", True),
            ("", "", True),
            ("ÉTÉ", "un été", True),
            ("straße", "STRASSE", False),
            # A capital sigma has two small forms, and an i with or without a dot one capital each.
            ("ΚΩΔΙΚΟΣ", "ΚΩΔΙΚΟΣΑΣ", True),
            ("κωδικός", "ΚΩΔΙΚΌΣ", True),
            ("istanbul", "İSTANBUL", True),
            ("KIZ", "k\u0131z", True),
            ("x", "", False),
        ],
    )
    def test_case_is_ignored_and_nothing_else(
        self, evaluate: Evaluate, said: Said, text: str, output: str, contained: bool
    ) -> None:
        contains = evaluate("contains", {"text": text}, said(output))
        excludes = evaluate("not_contains", {"text": text}, said(output))

        assert (contains.outcome is Outcome.PASSED) == contained
        assert (excludes.outcome is Outcome.PASSED) == (not contained)

    def test_a_missing_text_is_reported_with_what_was_there(
        self, evaluate: Evaluate, said: Said
    ) -> None:
        result = evaluate("contains", {"text": "refund"}, said("Sorry, no."))

        assert result.failure_code == "CONTAINS_FAILED"
        assert result.score == 0.0
        assert result.expected == "refund"
        assert result.actual == "Sorry, no."
        assert '"refund"' in result.message
        assert "Sorry, no." in result.message

    def test_what_must_not_be_there_is_pointed_at(self, evaluate: Evaluate, said: Said) -> None:
        result = evaluate("not_contains", {"text": "error"}, said("An ERROR. No error."))

        assert result.failure_code == "NOT_CONTAINS_FAILED"
        assert result.evidence == (Evidence("output", 3, 8), Evidence("output", 13, 18))

    def test_ranges_hold_where_lower_case_is_longer(self, evaluate: Evaluate, said: Said) -> None:
        output = "İİ Error İ"

        (evidence,) = evaluate("not_contains", {"text": "error"}, said(output)).evidence

        assert output[evidence.start : evidence.end] == "Error"

    def test_a_message_is_bounded_and_harmless(self, evaluate: Evaluate, said: Said) -> None:
        output = "\x1b]0;pwned\x07\r\n\u202e\ud800" + "x" * 1_000_000

        result = evaluate("contains", {"text": "y" * 1_000_000}, said(output))

        assert len(result.message) <= 1_000
        assert result.message.isprintable()
        # A value is as it was said: what shows it writes out what is not meant to be read.
        assert len(result.actual) <= 1_000
        assert output.startswith(result.actual.removesuffix("…"))


@pytest.mark.parametrize(
    ("output", "limit", "outcome"),
    [
        ("12345", 5, Outcome.PASSED),
        ("123456", 5, Outcome.FAILED),
        ("😀", 1, Outcome.PASSED),
        ("", 1, Outcome.PASSED),
    ],
)
def test_length_counts_characters(
    evaluate: Evaluate, said: Said, output: str, limit: int, outcome: Outcome
) -> None:
    result = evaluate("max_length", {"max": limit}, said(output))

    assert result.outcome is outcome
    assert result.threshold == limit
    if outcome is Outcome.FAILED:
        assert result.failure_code == "MAX_LENGTH_EXCEEDED"
        assert (result.expected, result.actual) == (limit, len(output))


class TestWholeText:
    @pytest.mark.parametrize(
        ("kind", "params", "output", "code"),
        [
            ("equals", {"text": "Done.\n"}, " \nDone.\n", None),
            ("equals", {"text": "Done."}, "done.", "EQUALS_FAILED"),
            ("equals", {"text": "Done."}, "Done. Bye.", "EQUALS_FAILED"),
            ("equals", {"text": "Done."}, "", "EQUALS_FAILED"),
            ("starts_with", {"text": "dear "}, "\n Dear Ann", None),
            ("starts_with", {"text": "κωδικοσ"}, "ΚΩΔΙΚΟΣΑΣ", None),
            ("starts_with", {"text": "dear "}, "My dear Ann", "STARTS_WITH_FAILED"),
            ("starts_with", {"text": "dear "}, "Dear", "STARTS_WITH_FAILED"),
            ("starts_with", {"text": "dear "}, "", "STARTS_WITH_FAILED"),
            (
                "not_contains",
                {"text": "inner fault"},
                "An in\u200bner\n fault",
                "NOT_CONTAINS_FAILED",
            ),
            ("not_contains", {"text": "don\u2019t know"}, "I don't\nknow", "NOT_CONTAINS_FAILED"),
            ("not_contains", {"text": "don\u2019t know"}, "I don't\nthink", None),
            ("contains_any", {"texts": ("refund", "money")}, "No MONEY", None),
            ("contains_any", {"texts": ("refund", "money")}, "No", "CONTAINS_FAILED"),
            ("contains_any", {"texts": ("refund", "money")}, "", "CONTAINS_FAILED"),
            ("contains_any", {"texts": ()}, "anything", "CONTAINS_FAILED"),
            ("matches", {"pattern": r"REF-\d{4}$"}, "It is REF-1234", None),
            ("matches", {"pattern": r"REF-\d{4}$"}, "It is ref-1234", "PATTERN_NOT_MATCHED"),
            ("matches", {"pattern": r"(?i)REF-\d{4}$"}, "It is ref-1234", None),
            ("matches", {"pattern": r"^\w+$"}, "a" * 100_000 + " secret", "PATTERN_NOT_MATCHED"),
            ("not_matches", {"pattern": "will e?mail"}, "I Will email", None),
            ("not_matches", {"pattern": "will e?mail"}, "I will email", "PATTERN_MATCHED"),
            ("not_matches", {"pattern": "email"}, "I e\u200bmail", "PATTERN_MATCHED"),
            ("not_matches", {"pattern": "email"}, "I ma\u200bil", None),
            ("not_matches", {"pattern": "e-mail"}, "." * 100_000 + "e-mail", "PATTERN_MATCHED"),
        ],
    )
    def test_a_text_is_as_demanded_or_is_reported(
        self,
        evaluate: Evaluate,
        said: Said,
        kind: str,
        params: Any,
        output: str,
        code: str | None,
    ) -> None:
        result = evaluate(kind, params, said(output))

        assert result.failure_code == code
        assert (result.outcome is Outcome.PASSED) == (code is None)

    @given(st.text(), st.text(min_size=1).filter(str.strip))
    def test_no_demand_is_met_by_a_text_that_lacks_it(self, output: str, wanted: str) -> None:
        seen = Transcript(turns=(Turn("Hello?", (Step(output),)),))

        def passes(kind: str, **params: Any) -> bool:
            return evaluated(demand(kind, kind, params), seen).outcome is Outcome.PASSED

        begins, has = passes("starts_with", text=wanted), passes("contains", text=wanted.lstrip())
        assert has or not begins
        assert begins or not passes("equals", text=wanted)
        assert passes("contains_any", texts=(wanted, "\ue000")) == passes("contains", text=wanted)

    @given(
        st.data(),
        st.text(alphabet="\u03a3\u03c3\u03c2\u0130\u0131Iiß\u212ak\ufb01\u200b a", min_size=1),
    )
    def test_a_part_of_an_answer_is_found_and_forbidden(
        self, data: st.DataObject, output: str
    ) -> None:
        start = data.draw(st.integers(0, len(output) - 1))
        part = output[start : data.draw(st.integers(start + 1, len(output)))]
        seen = Transcript(turns=(Turn("Hello?", (Step(output),)),))

        contains, excludes = (
            evaluated(demand(kind, kind, {"text": part}), seen).outcome
            for kind in ("contains", "not_contains")
        )

        assert (contains, excludes) == (Outcome.PASSED, Outcome.FAILED)

    @pytest.mark.parametrize(
        ("kind", "params"),
        [
            ("equals", {"text": "x"}),
            ("starts_with", {"text": "x"}),
            ("contains_any", {"texts": ["x"]}),
            ("matches", {"pattern": "x"}),
            ("schema", {"schema": {"type": "object"}}),
        ],
    )
    def test_only_the_last_answer_counts(
        self, evaluate: Evaluate, used: Any, kind: str, params: Any
    ) -> None:
        matching = '{"x": 1}' if kind == "schema" else "x"
        call = Step(matching, (used("lookup", response=matching),))
        earlier = Turn(matching, (Step(matching),))
        last = Turn(matching, (call, Step("no")))

        assert evaluate(kind, params, Transcript(turns=(earlier, last))).outcome is Outcome.FAILED
        assert evaluate(kind, params, Transcript()).outcome is Outcome.FAILED
        assert evaluate(kind, params, Transcript(turns=(last, earlier))).outcome is Outcome.PASSED


class TestSimilarTo:
    def compared(
        self, output: str, embed: Embed | None = None, ask: Ask = nobody, **params: Any
    ) -> CheckResult:
        check = demand("similar_to", "s", {"text": "The refund is on its way.", **params})
        transcript = Transcript(turns=(Turn("Hello?", (Step(output),)),))
        return evaluated(check, transcript, CheckContext(ask, embed))

    @pytest.mark.parametrize(
        ("vector", "outcome"), [((0.81, 0.586), Outcome.PASSED), ((0.5, 0.866), Outcome.FAILED)]
    )
    def test_the_score_is_the_cosine(self, vector: Any, outcome: Outcome) -> None:
        result = self.compared("It comes.", embedding((1.0, 0.0), vector))

        assert result.outcome is outcome
        assert result.threshold == 0.8
        assert result.score == pytest.approx(vector[0], abs=0.001)
        assert result.failure_code == (None if outcome is Outcome.PASSED else "NOT_SIMILAR")

    def test_an_empty_output_is_similar_to_nothing(self) -> None:
        result = self.compared(" \n", embedding((1.0, 0.0), (1.0, 0.0)))

        assert (result.outcome, result.score) == (Outcome.FAILED, 0.0)

    def test_a_judge_compares_where_it_is_asked_to(self) -> None:
        judge = Judge('{"driftScore": 0.5, "reasoning": "It says less."}')
        result = self.compared("It comes.", ask=judge, method="judge")

        assert (result.failure_code, result.score) == ("NOT_SIMILAR", 0.5)
        assert "It says less." in result.message

    def test_without_an_embedder_it_is_undecided(self) -> None:
        result = self.compared("The refund is on its way.")

        assert result.outcome is Outcome.INCONCLUSIVE
        assert "method: judge" in result.message
