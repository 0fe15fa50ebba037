"""Answers that depend on what happened before: state, sequences, placeholders, recorded answers."""

from __future__ import annotations

import asyncio
import json
from typing import Any, ClassVar

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kindlm.engine.simulation import MissingValueError, SimulatedTools, fill
from kindlm.matching import state_matches
from kindlm.ports import AnsweredCall
from kindlm.suite import RecordedAnswer, SimulatedTool, ToolAnswer
from kindlm.transcript import ToolCall, ToolProblemKind

ABSENT = {"$absent": True}

REFUND = SimulatedTool(
    "refund",
    answers=(
        ToolAnswer(
            None,
            {"ok": True, "before": "{{args.id}}"},
            when_state={"refunded": ABSENT},
            set_state={"refunded": "{{args.id}}"},
        ),
        ToolAnswer(None, {"error": "already refunded: {{state.refunded}}"}),
    ),
)
LOOKUP = SimulatedTool(
    "lookup",
    answers=(ToolAnswer(None, "refunded", when_state={"refunded": "A1"}),),
    default="delivered",
    has_default=True,
)


def ask(tools: SimulatedTools, call: ToolCall) -> AnsweredCall:
    return asyncio.run(tools.answer(call))


def responses(tools: SimulatedTools, *calls: tuple[str, dict[str, Any]]) -> list[Any]:
    return [ask(tools, ToolCall("c", name, arguments)).use.response for name, arguments in calls]


def only(*answers: ToolAnswer, **more: Any) -> SimulatedTools:
    return SimulatedTools([SimulatedTool("t", answers=answers, **more)])


class TestState:
    def test_what_an_answer_sets_later_calls_of_every_tool_see(self) -> None:
        tools = SimulatedTools([REFUND, LOOKUP])

        assert responses(
            tools, ("lookup", {}), ("refund", {"id": "A1"}), ("refund", {}), ("lookup", {})
        ) == [
            "delivered",
            {"ok": True, "before": "A1"},
            {"error": "already refunded: A1"},
            "refunded",
        ]

    def test_every_execution_begins_without_state(self) -> None:
        for _ in range(2):
            assert responses(SimulatedTools([REFUND]), ("refund", {"id": "A1"}))[0]["ok"] is True

    def test_an_answer_reads_the_state_as_the_call_found_it(self) -> None:
        tools = only(
            ToolAnswer(None, 0, when_state={"n": ABSENT}, set_state={"n": 1}),
            ToolAnswer(None, "{{state.n}}", set_state={"n": 2}),
        )

        assert responses(tools, *[("t", {})] * 3) == [0, 1, 2]

    @pytest.mark.parametrize(
        ("wanted", "state", "holds"),
        [
            ({}, {}, True),
            ({"a": 1}, {"a": 1.0, "b": 2}, True),
            ({"a": 1}, {"a": True}, False),
            ({"a": 1}, {}, False),
            ({"a": None}, {}, False),
            ({"a": None}, {"a": None}, True),
            ({"a": ABSENT}, {}, True),
            ({"a": ABSENT}, {"a": None}, False),
            ({"a": ABSENT, "b": 1}, {"b": 2}, False),
            ({"o": {"a": ABSENT, "b": 1}}, {"o": {"b": 1, "c": 2}}, True),
            ({"o": {"a": ABSENT}}, {"o": {"a": 1}}, False),
            ({"o": {"a": ABSENT}}, {}, True),
            ({"o": {"a": ABSENT, "b": 1}}, {}, False),
            ({"o": {}}, {}, False),
            ({"o": {"a": ABSENT}}, {"o": 3}, False),
            ({"l": [{"a": 1}]}, {"l": [{"a": 1, "b": 2}]}, True),
            ({"l": [1]}, {"l": [1, 2]}, False),
        ],
    )
    def test_a_state_matches_in_part(self, wanted: Any, state: Any, holds: bool) -> None:
        assert state_matches(wanted, state) is holds


class TestPlaceholders:
    SCOPE: ClassVar[dict[str, Any]] = {
        "args": {
            "id": "A1",
            "n": 2.5,
            "yes": True,
            "nothing": None,
            "o": {"k-1": {"0": "zero"}},
            "l": [{"x": "é"}, [7]],
        },
        "state": {"id": "S1"},
    }

    @pytest.mark.parametrize(
        ("template", "value"),
        [
            ("{{args.id}}", "A1"),
            ("{{ state.id }}", "S1"),
            ("{{args.n}}", 2.5),
            ("{{args.yes}}", True),
            ("{{args.nothing}}", None),
            ("{{args.l}}", [{"x": "é"}, [7]]),
            ("{{args.l[0].x}}", "é"),
            ("{{args.l.1.0}}", 7),
            ("{{args.o.k-1.0}}", "zero"),
            (
                "id={{args.id}} n={{args.n}} l={{args.l}} {{args.nothing}}",
                'id=A1 n=2.5 l=[{"x": "é"}, [7]] null',
            ),
            ({"{{args.id}}": ["{{args.id}}", 1]}, {"{{args.id}}": ["A1", 1]}),
        ],
    )
    def test_one_placeholder_keeps_its_type_and_others_become_text(
        self, template: Any, value: Any
    ) -> None:
        assert fill(template, self.SCOPE) == value
        assert type(fill(template, self.SCOPE)) is type(value)

    @pytest.mark.parametrize(
        "text",
        ["{{id}}", "{{args}}", "{{ env.KEY }}", "{{args.}}", "{{args.a b}}", "{args.id}", "{{"],
    )
    def test_anything_else_stays_as_it_is(self, text: str) -> None:
        assert fill([text, f"a {text}"], self.SCOPE) == [text, f"a {text}"]

    @given(st.text() | st.just("{{state.id}}") | st.just("{{args.v}}"))
    def test_what_is_put_in_is_never_looked_at_again(self, value: str) -> None:
        scope = {"args": {"v": value}, "state": {"id": "never"}}

        assert fill("{{args.v}}", scope) == value
        assert fill("<{{args.v}}{{args.v}}>", scope) == f"<{value}{value}>"

    @pytest.mark.parametrize(
        "path",
        [
            "args.missing",
            "args.id.x",
            "args.l[2]",
            "args.l.x",
            "args.o.0",
            "state.x",
            "args.l.\u0660",
        ],
    )
    def test_a_path_that_leads_nowhere_is_an_error(self, path: str) -> None:
        with pytest.raises(MissingValueError) as caught:
            fill({"a": ["x {{" + path + "}}"]}, self.SCOPE)

        assert str(caught.value) == path

    def test_a_huge_index_leads_nowhere(self) -> None:
        with pytest.raises(MissingValueError):
            fill("{{args.l[" + "9" * 5_000 + "]}}", self.SCOPE)

    @pytest.mark.parametrize(
        "answer",
        [
            ToolAnswer(None, "{{args.note}}", set_state={"seen": True}),
            ToolAnswer(None, "fine", set_state={"seen": True, "note": "{{args.note}}"}),
        ],
    )
    def test_an_answer_that_lacks_a_value_is_an_error_object_and_sets_nothing(
        self, answer: ToolAnswer
    ) -> None:
        tools = only(ToolAnswer(None, "seen", when_state={"seen": True}), answer)

        first = ask(tools, ToolCall("c", "t", {}))
        second = ask(tools, ToolCall("c", "t", {"note": "x"}))
        third = ask(tools, ToolCall("c", "t", {}))

        assert "args.note" in first.use.response["error"]
        assert first.use.response["tool"] == "t"
        assert first.use.rule == "responses[1]"
        assert [problem.kind for problem in first.use.problems] == [ToolProblemKind.UNMATCHED]
        assert second.use.problems == ()
        assert third.use.response == "seen"


class TestSequences:
    def test_the_nth_matching_call_gets_the_nth_answer_and_the_last_one_stays(self) -> None:
        steps = (ToolAnswer(then="pending"), ToolAnswer(then="{{args.id}}", delay_ms=20))
        tools = only(ToolAnswer({"id": "A"}, sequence=steps, delay_ms=5), ToolAnswer(None, "other"))

        asked = ["A", "B", "A", "A"]
        answers = [ask(tools, ToolCall("c", "t", {"id": name})) for name in asked]

        assert [answer.use.response for answer in answers] == ["pending", "other", "A", "A"]
        assert [answer.use.rule for answer in answers] == [
            "responses[0].sequence[0]",
            "responses[1]",
            "responses[0].sequence[1]",
            "responses[0].sequence[1]",
        ]
        assert [answer.delay_s for answer in answers] == [0.005, 0.0, 0.02, 0.02]

    def test_every_rule_and_every_execution_counts_for_itself(self) -> None:
        def tools() -> SimulatedTools:
            def sequence(*values: Any) -> tuple[ToolAnswer, ...]:
                return tuple(ToolAnswer(then=value) for value in values)

            return only(
                ToolAnswer({"k": 1}, sequence=sequence("a", "b")),
                ToolAnswer(None, sequence=sequence("x", "y")),
            )

        for _ in range(2):
            assert responses(tools(), ("t", {"k": 1}), ("t", {}), ("t", {"k": 1}), ("t", {})) == [
                "a",
                "x",
                "b",
                "y",
            ]

    def test_what_stands_beside_a_sequence_is_set_each_time(self) -> None:
        steps = (ToolAnswer(then=1, set_state={"step": "first"}), ToolAnswer(then=2))
        tools = SimulatedTools(
            [
                SimulatedTool(
                    "t", answers=(ToolAnswer(sequence=steps, set_state={"step": "any"}),)
                ),
                SimulatedTool("read", answers=(ToolAnswer(then="{{state.step}}"),)),
            ]
        )

        assert responses(tools, ("t", {}), ("read", {}), ("t", {}), ("read", {})) == [
            1,
            "first",
            2,
            "any",
        ]


class TestRecorded:
    RECORDED = (
        RecordedAnswer({"id": "A", "n": 1}, "first"),
        RecordedAnswer({"id": "B"}, {"kept": "{{args.id}}"}),
        RecordedAnswer({"n": 1.0, "id": "A"}, "second"),
    )

    def test_equal_arguments_get_the_recorded_answers_in_their_order(self) -> None:
        tools = only(recorded=self.RECORDED, default="default", has_default=True)

        asked: list[dict[str, Any]] = [
            {"id": "A", "n": 1},
            {"id": "B"},
            {"n": 1, "id": "A"},
            {"id": "A", "n": 1.0},
        ]
        answers = [ask(tools, ToolCall("c", "t", arguments)) for arguments in asked]

        assert [answer.use.response for answer in answers] == [
            "first",
            {"kept": "{{args.id}}"},
            "second",
            "second",
        ]
        assert {answer.use.rule for answer in answers} == {"cassette"}

    @pytest.mark.parametrize(
        "arguments", [{"id": "A"}, {"id": "A", "n": 1, "x": 1}, {"id": "A", "n": True}, {}]
    )
    def test_other_arguments_get_the_default(self, arguments: dict[str, Any]) -> None:
        tools = only(recorded=self.RECORDED, default="default", has_default=True)

        assert ask(tools, ToolCall("c", "t", arguments)).use.rule == "defaultResponse"

    def test_a_written_answer_comes_first_and_does_not_use_a_recorded_one_up(self) -> None:
        first = ToolAnswer(None, "written", when_state={"asked": ABSENT}, set_state={"asked": True})
        tools = only(first, recorded=self.RECORDED)

        arguments = {"id": "A", "n": 1}
        assert responses(tools, *[("t", arguments)] * 2) == ["written", "first"]

    def test_without_a_default_a_call_that_was_not_recorded_is_a_problem(self) -> None:
        answer = ask(only(recorded=self.RECORDED), ToolCall("c", "t", {"id": "C"}))

        assert [problem.kind for problem in answer.use.problems] == [ToolProblemKind.UNMATCHED]


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(json_values)
def test_an_answer_without_placeholders_is_given_as_it_stands(value: Any) -> None:
    answer = ask(only(ToolAnswer(None, value)), ToolCall("c", "t", {}))

    assert json.dumps(answer.use.response) == json.dumps(value)
