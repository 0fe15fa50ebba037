"""Recordings as tests."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from otlp import otlp_request, otlp_span
from traced_lookups import (
    ARGUMENTS,
    DIALECTS,
    SCHEMA,
    SYSTEM,
    TOOL,
    USER,
    chat_span,
    parts,
    tool_span,
)

from kindlm.cli.app import run
from kindlm.config import load_suite
from kindlm.generate.stand_ins import StandIns


@pytest.fixture
def gen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Return a function that generates from spans; it returns the exit code and the suite."""
    monkeypatch.chdir(tmp_path)

    def gen(*spans: dict[str, Any], more: tuple[str, ...] = ()) -> tuple[int, Any]:
        Path("trace.json").write_bytes(otlp_request(*spans))
        code = run(["gen", "--from-trace", "trace.json", "--force", *more])
        file = Path("tests/generated/trace.yaml")
        if code == 0:
            assert load_suite(file).suite is not None
        return code, yaml.safe_load(file.read_text("utf-8")) if file.exists() else None

    return gen


def test_each_recording_becomes_a_test_so_there_is_no_number(gen: Any, capsys: Any) -> None:
    assert gen(chat_span(1, USER), more=("--count", "3")) == (1, None)
    assert "--count: each recording becomes a test" in capsys.readouterr().err


def test_equal_calls_get_their_results_in_turn_and_longer_ones_come_first(gen: Any) -> None:
    _, made = gen(
        chat_span(1, USER),
        tool_span(2, {"a": 1}, "pending"),
        tool_span(3, {"a": 1, "b": 2}, "both"),
        tool_span(4, {"a": 1}, "done"),
        tool_span(5, {}, "all"),
    )
    (test,) = made["tests"]
    (tool,) = test["tools"]
    assert tool["parameters"] == SCHEMA
    assert tool["responses"] == [
        {"when": {"a": 1, "b": 2}, "then": "both"},
        {"when": {"a": 1}, "sequence": [{"then": "pending"}, {"then": "done"}]},
        {"then": "all"},
    ]
    assert test["strictTools"] is True
    assert test["expect"]["trajectory"]["mode"] == "strict"
    assert len(test["expect"]["trajectory"]["calls"]) == 4


def asking(number: int, users: tuple[str, ...], *calls: tuple[str, int]) -> dict[str, Any]:
    """Return the span of a model that asks for calls of `lookup`, each with an id and a number."""
    parts = [
        {"type": "tool_call", "id": key, "name": "lookup", "arguments": {"n": n}}
        for key, n in calls
    ]
    said = json.dumps([{"role": "assistant", "parts": parts}])
    return chat_span(number, *users, also={"gen_ai.output.messages": said})


@pytest.mark.parametrize("parallel", [True, False])
def test_each_call_is_demanded_in_its_turn_and_at_its_place(gen: Any, *, parallel: bool) -> None:
    first = [("a", 1), ("b", 2)] if parallel else [("a", 1)]
    spans = [chat_span(1, "One"), asking(2, ("One", "Two"), *first)]
    spans += [asking(3, ("One", "Two"), ("c", 3)), asking(4, ("One", "Two", "Three"), ("d", 4))]
    made = gen(*spans, more=("--agent", "shop:agent"))[1]["tests"][0]["expect"]["trajectory"]

    places = [(call["argsMatch"]["n"], call["turn"], call.get("order")) for call in made["calls"]]
    assert (made["mode"], places) == (
        ("unordered", [(1, 2, None), (2, 2, None), (3, 2, 2), (4, 3, 3)])
        if parallel
        else ("strict", [(1, 2, None), (3, 2, None), (4, 3, None)])
    )


@pytest.mark.parametrize(
    ("first", "second", "orders"),
    [
        ([("c", 1)], [("c", 2)], ("strict", [None, None])),
        ([("", 1), ("", 2)], [("", 3)], ("unordered", [None, None, 2])),
        ([("a", 1), ("b", 2)], [("a", 3), ("b", 4)], ("unordered", [None] * 4)),
    ],
)
def test_calls_are_parallel_if_one_answer_asks_for_them_whatever_their_ids(
    gen: Any, first: Any, second: Any, orders: Any
) -> None:
    spans = (asking(1, ("One",), *first), asking(2, ("One",), *second))
    made = gen(*spans, more=("--agent", "shop:agent"))[1]["tests"][0]["expect"]["trajectory"]
    assert (made["mode"], [call.get("order") for call in made["calls"]]) == orders
    assert [call["argsMatch"]["n"] for call in made["calls"]] == [n for _, n in (*first, *second)]


def test_a_call_without_an_id_that_a_later_message_repeats_is_demanded_once(gen: Any) -> None:
    asks = {"type": "tool_call", "id": "", "name": "lookup", "arguments": {"n": 1}}
    said = {"role": "assistant", "parts": [asks]}
    users = [{"role": "user", "parts": parts("content", text)} for text in ("One", "Two")]
    told = {"gen_ai.input.messages": json.dumps([users[0], said, users[1]])}
    spans = (asking(1, ("One",), ("", 1)), otlp_span(2, DIALECTS["genai"] | told))
    made = gen(*spans, more=("--agent", "shop:agent"))[1]["tests"][0]["expect"]["trajectory"]
    assert [call["argsMatch"]["n"] for call in made["calls"]] == [1]


def test_personal_data_and_secrets_have_the_same_stand_ins_everywhere(
    gen: Any, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    mail, card, phone = "Ann@shop.org", "4111 1111 1111 1111", "+49 170 1234567"
    key, other_key = "sk-proj-abcdefghijklmnop1234", f"AIza{'Sy' * 17}D"
    monkeypatch.setenv("SHOP_API_KEY", "only-known-here-42")
    spans = (
        chat_span(
            1,
            f"Hello, I am one of your customers: {mail}, card {card}, {phone}.{key}! {other_key}",
        ),
        tool_span(
            2, {"mail": mail, "card": card.replace(" ", ""), "apiToken": "x7!kd83jd9"}, [phone]
        ),
        chat_span(3, "Mail bob@shop.org, say only-known-here-42", trace="2" * 32),
    )
    _, made = gen(*spans)
    text = json.dumps(made)
    for value in (mail, card, phone, key, other_key, "x7!kd83jd9", "bob@", "4111"):
        assert value not in text
    first, second = made["tests"]
    (response,) = first["tools"][0]["responses"]
    assert response["when"]["mail"] == "person1@example.com"
    assert "person1@example.com" in first["input"]
    assert response["then"][0] in first["input"]
    assert response["when"]["card"] in first["input"].replace(" ", "")
    assert second["input"] == "Mail person2@example.com, say [redacted]"
    told = " ".join(capsys.readouterr().err.split())
    assert "1 credit card, 2 emails, 1 phone number, 4 secrets" in told
    assert "ann" not in told.lower()

    _, made = gen(*spans, more=("--keep-personal-data",))
    text = json.dumps(made)
    assert mail in text
    assert key not in text


def test_a_value_has_one_stand_in_in_any_form(gen: Any) -> None:
    values = {
        "password": "Hunter2-long-secret",
        "e164": "+14155552671",
        "plain": "4155552671",
        "number": 4155552671,
        "card": 4111111111111111,
        "float": 4111111111111111.0,
        "url": "https://shop.example/?email=jane%40acme.org",
        "partition_key": "customer-77",
        "amount": 8045311447,
        "ratio": 0.5,
    }
    user = "Set my password to Hunter2-long-secret, mail jane@acme.org, call (415) 555-2671."
    result = {"a@x.com": 1, "A@x.com": 2, "client_secret": "zz-yy-112233", "text": "zz-yy-112233"}
    _, made = gen(chat_span(1, user), tool_span(2, values, result))
    (test,) = made["tests"]
    assert (
        test["input"] == "Set my password to [redacted], mail person1@example.com, call 2025550101."
    )
    (response,) = test["tools"][0]["responses"]
    # The password is not demanded.
    assert response["when"] == {
        "e164": "+12025550101",
        "plain": "2025550101",
        "number": 2025550101,
        "card": (card := response["when"]["card"]),
        "float": card,
        "url": "https://shop.example/?email=person1%40example.com",
        "partition_key": "customer-77",
        "amount": 8045311447,
        "ratio": 0.5,
    }
    assert str(card).startswith("999999")
    assert response["then"] == {
        "person2@example.com": 1,
        "person2@example.com'": 2,
        "client_secret": "[redacted]",
        "text": "[redacted]",
    }
    (call,) = test["expect"]["trajectory"]["calls"]
    assert call == {"tool": "lookup", "argsMatch": response["when"]}


def test_secrets_are_removed_from_lists_and_from_headers(gen: Any) -> None:
    headers = {"Authorization": ["Basic am9lOnBhc3N3b3Jk"], "Cookie": "sid=81f2a9c4d7"}
    values = {"api_keys": ["zq81-kkPw-one", "zq82-kkPw-two"], "headers": headers, "tokens": ["a"]}
    _, made = gen(chat_span(1, "Use zq82-kkPw-two."), tool_span(2, values, "sid=81f2a9c4d7"))
    (test,) = made["tests"]
    assert test["input"] == "Use [redacted]."
    (response,) = test["tools"][0]["responses"]
    assert response == {"when": {"tokens": ["a"]}, "then": "[redacted]"}


def _stand_ins() -> StandIns:
    return StandIns(lambda it: it, keep_personal_data=False)


@pytest.mark.parametrize(
    "value",
    [
        {"apiKeys": {"stripe": "zq81-kkPw-one", "mode": "live"}},
        {"db_password": 83920174, "note": 5},
        [["Authorization", "Basic am9lOnBhc3N3b3Jk"], ["Accept", "text/html"]],
        [["Cookie", "sid=81f2a9c4d7; lang=en"]],
        [{"name": "Authorization", "value": "zq81-kkPw-one"}],
        [{"key": "X-Api-Key", "value": "zq81-kkPw-one", "type": "text"}],
    ],
)
def test_secrets_in_mappings_numbers_and_entries_are_removed(value: Any) -> None:
    stand_ins = _stand_ins()
    assert json.dumps(stand_ins.value(value)).count("[redacted]") == 1
    assert stand_ins.replaced == {"secret": 1}


@pytest.mark.parametrize(
    "value",
    [
        {"Key": {"order_id": {"S": "ord-81f2a9c4"}}, "Keys": [{"order_id": "ord-81f2a9c4"}]},
        {"tokens": {"first": "ord-81f2a9c4"}, "max_tokens": 100, "next_token": 83920174},
        {"tokens": [83920174], "passwords": {"changed": 2, "by": "user-81f2a9c4"}},
        {"apiKeys": {"type": "object", "title": "a1-b2-c3-d4"}, "secrets": {"$ref": "#/a1/b2"}},
        {"properties": {"apiKeys": {"description": "All keys, by the name of a service."}}},
        {"allow": ["Authorization", "X-Amz-Security-Token"], "password": {"minLength": 12345678}},
        [["Authorization", "How a customer signs in"], {"name": "Turkey", "value": "2,345,678"}],
        {"has_password": True, "password": 1234, "name": "api_key", "value": "required"},
    ],
)
def test_ids_schemas_and_words_are_no_secrets(value: Any) -> None:
    assert _stand_ins().value(value) == value


@pytest.mark.timeout(20)
@pytest.mark.parametrize("part", ["3fa", "a.", "eyJ-"])
def test_long_words_take_no_time(part: str) -> None:
    text = part * 10_000
    assert _stand_ins().text(text) == text


def test_texts_are_never_filled_in(gen: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("A_KEY", "the-value")
    evil = "{{env.A_KEY}} {{name}} {{args.x}}\n- a: b\x1b[31m"
    system = {"gen_ai.system_instructions": json.dumps(parts("content", evil))}
    gen(chat_span(1, "Hi", evil, also=system), tool_span(2, {"x": evil[:13]}, "sent"))
    suite = load_suite(Path("tests/generated/trace.yaml")).suite
    assert suite is not None
    (case,) = suite.cases
    assert (case.prompt.system, case.follow_ups) == (evil, (evil,))


def test_what_is_not_enough_is_left_out_with_the_reason(
    gen: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    code, made = gen(
        chat_span(1, "x", trace="1" * 32),
        tool_span(2, ARGUMENTS, "sent", trace="1" * 32),
        chat_span(3, "fills in", trace="2" * 32),
        tool_span(4, ARGUMENTS, "{{args.order_id}}", trace="2" * 32),
        chat_span(5, "no result", trace="3" * 32),
        tool_span(6, ARGUMENTS, None, trace="3" * 32),
        tool_span(7, ARGUMENTS, "sent", trace="4" * 32),
        chat_span(8, "elsewhere", trace="5" * 32, also={"gen_ai.provider.name": "acme"}),
        chat_span(
            9, "key", trace="6" * 32, also={"gen_ai.request.model": "{{env.OPENAI_API_KEY}}"}
        ),
        chat_span(
            12,
            "canary",
            trace="8" * 32,
            also={
                "gen_ai.tool.definitions": json.dumps([TOOL | {"description": "{{run.canary}}"}])
            },
        ),
        chat_span(10, "bare", trace="7" * 32),
        tool_span(11, "A1", "sent", trace="7" * 32),
    )
    assert (code, [test["name"] for test in made["tests"]]) == (0, ["trace 11111111: lookup"])
    told = capsys.readouterr().err
    for name, why in {
        "22222222": "contains {{args.order_id}}, which kindlm.yaml would fill in",
        "88888888": "contains {{run.canary}}, which kindlm.yaml would fill in",
        "33333333": "The result of lookup is not in it",
        "trace 44444444": "no message of a user",
        "55555555": "Pass --provider and --model, or --agent",
        "66666666": "Pass --provider and --model, or --agent",
        "77777777": 'do not contain the arguments of "lookup"',
    }.items():
        assert any(name in line and why in line for line in told.splitlines()), name


@pytest.mark.parametrize("failed", [True, False])
def test_what_failed_is_not_asserted(
    gen: Any, capsys: pytest.CaptureFixture[str], *, failed: bool
) -> None:
    more = {} if failed else {"error": "boom"}
    options = ("--failed",) if failed else ()
    code, made = gen(chat_span(1, USER, **more), tool_span(2, ARGUMENTS, 1, parent=1), more=options)
    (test,) = made["tests"]
    assert (code, test["skip"], list(test["expect"])) == (0, True, ["judge"])
    assert "\nThen run: kindlm test" in capsys.readouterr().out
    text = Path("tests/generated/trace.yaml").read_text("utf-8")
    assert "#   calls:" in text
    assert "TODO" in text


def test_an_agent_gets_the_messages_alone(gen: Any) -> None:
    options = ("--agent", "http://127.0.0.1:8000/chat")
    _, made = gen(chat_span(1, USER), tool_span(2, ARGUMENTS, None), more=options)
    (test,) = made["tests"]
    assert made["agent"] == "http://127.0.0.1:8000/chat"
    assert test.keys() == {"name", "input", "expect"}


def test_tests_that_are_too_much_for_one_file_stand_in_several(gen: Any) -> None:
    spans = []
    for n in range(1, 52):  # a suite has at most 50 models
        model = {"gen_ai.request.model": f"m-{n}"}
        spans.append(chat_span(n, "Hi", trace=f"{n:032x}", also=model))
    assert gen(*spans)[0] == 0
    suites = [load_suite(each).suite for each in sorted(Path("tests/generated").iterdir())]
    assert [len(suite.cases) for suite in suites if suite] == [25, 26]


def test_an_argument_with_a_canary_is_not_demanded(gen: Any) -> None:
    leaked = ARGUMENTS | {"note": "The token:\nkc-0123456789abcdef"}
    _, made = gen(chat_span(1, "Hi"), tool_span(2, leaked, "sent"))
    (test,) = made["tests"]
    assert test["expect"]["trajectory"]["calls"] == [{"tool": "lookup", "argsMatch": ARGUMENTS}]
    assert test["tools"][0]["responses"] == [{"when": ARGUMENTS, "then": "sent"}]


def test_an_execution_becomes_a_test_of_what_it_ran_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    tool = {"name": "lookup", "description": "Finds.", "defaultResponse": "{{run.canary}}"}
    calls = {"toolCalls": [{"name": "lookup", "arguments": ARGUMENTS}]}
    suite = {
        "providers": {"mine": {"type": "scripted", "replies": [calls, {"text": "Sent."}]}},
        "model": {"id": "fake", "provider": "mine", "model": "m-1", "params": {"seed": 7}},
        "agent": {"id": "shop", "adapter": "python", "endpoint": "shop:agent"},
        "tests": [
            {"name": "model", "models": "fake", "tags": ["attack", "ASI01"]}
            | {"input": {"system": SYSTEM, "user": "Hi {{run.canary}}"}}
            | {"tools": [tool], "expect": {"toolCalls": ["lookup"]}},
            {"name": "agent", "models": "shop", "input": "One"}
            | {"conversation": ["Two"]}
            | {"expect": {"toolCalls": ["lookup"]}},
            {"name": "wrong", "models": "shop", "input": "One"}
            | {"expect": {"toolCalls": ["refund"]}},
        ],
    }
    answer = {"text": "Sent.", "tool_calls": [{"name": "lookup", "arguments": ARGUMENTS}]}
    Path("suites").mkdir()
    Path("suites/kindlm.yaml").write_text(yaml.safe_dump(suite), "utf-8")
    Path("suites/shop.py").write_text(f"def agent(text):\n    return {answer}\n", "utf-8")
    assert run(["test", "suites/kindlm.yaml", "--quiet"]) == 1
    for number in "123":
        assert run(["gen", "--from-run", "latest", number, "--output", "suites"]) == 0
    made = {
        name: yaml.safe_load(Path(f"suites/{name}.yaml").read_text("utf-8"))
        for name in ("model", "agent", "wrong")
    }
    (test,) = made["model"]["tests"]
    response = {"when": ARGUMENTS, "then": "{{run.canary}}"}
    assert test["tools"] == [{"name": "lookup", "description": "Finds.", "responses": [response]}]
    assert (test["tags"], test["input"]["user"]) == (["attack", "ASI01"], "Hi {{run.canary}}")
    assert made["model"]["models"][0]["params"]["seed"] == 7
    assert len(made["agent"]["tests"][0]["expect"]["trajectory"]["calls"]) == 2
    assert made["wrong"]["tests"][0]["skip"] is True
    # The agent is found from another folder, too.
    assert run(["gen", "--from-run", "latest", "2", "--output", "elsewhere"]) == 0
    assert run(["test", "suites/model.yaml", "elsewhere", "--quiet"]) == 0


def test_an_agent_that_reports_its_tools_by_its_suite_needs_no_proof(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    agent = {"id": "shop", "adapter": "python", "endpoint": "shop:agent", "reportsTools": True}
    case = {"name": "hi", "input": "Hi", "expect": {"output": {"contains": "Sent"}}}
    Path("kindlm.yaml").write_text(yaml.safe_dump({"agent": agent, "tests": [case]}), "utf-8")
    Path("shop.py").write_text("def agent(text):\n    return 'Sent.'\n", "utf-8")
    assert run(["test", "--quiet"]) == 0
    assert run(["gen", "--from-run", "latest", "1", "--output", "made"]) == 0
    (test,) = yaml.safe_load(Path("made/hi.yaml").read_text("utf-8"))["tests"]
    assert test["expect"] == {"trajectory": {"mode": "strict", "calls": []}}


def test_an_exported_run_that_gives_no_test_says_why_once(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    skipped = {"name": "skipped", "input": "Hi", "skip": True, "expect": {"output": {}}}
    suite = {
        "agent": {"id": "shop", "adapter": "python", "endpoint": "shop:agent"},
        "tests": [skipped, {**skipped, "name": "repeated", "skip": False, "repeat": 3}],
    }
    Path("kindlm.yaml").write_text(yaml.safe_dump(suite), "utf-8")
    answer = {"text": "Sent.", "tool_calls": [{"name": "lookup", "arguments": ARGUMENTS}]}
    Path("shop.py").write_text(f"def agent(text):\n    return {answer}\n", "utf-8")
    run(["test", "--quiet"])

    def left_out(*options: str) -> list[str]:
        assert run(["export", "latest", "--format", "otlp", "-o", "run.json", *options]) == 0
        capsys.readouterr()
        run(["gen", "--from-trace", "run.json", "--agent", "shop:agent", "--force"])
        told = capsys.readouterr().err.splitlines()
        return [each for each in told if each.startswith("Left out: ")]

    was_skipped = "Left out: skipped: The test was skipped."
    skipped_one, without = left_out()
    assert skipped_one == was_skipped
    assert without.startswith("Left out: repeated: The trace has no message of a user.")
    assert "a run of kindlm with --contents." in without
    assert left_out("--contents") == [was_skipped]


_SERVER = """
import sys
from http.server import BaseHTTPRequestHandler, HTTPServer

class Shop(BaseHTTPRequestHandler):
    def do_POST(self):
        self.send_response(200)
        self.end_headers()
        self.wfile.write(b'{"text": "Hi", "tool_calls": []}')

HTTPServer(("127.0.0.1", int(sys.argv[1])), Shop).serve_forever()
"""


def test_an_agent_that_its_suite_starts_needs_the_folder_of_the_suite(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    suite = {
        "agent": {"id": "shop", "endpoint": "http://127.0.0.1:{{serve.shop.port}}/chat"},
        "serve": [{"name": "shop", "command": [sys.executable, "shop.py", "{{serve.shop.port}}"]}],
        "tests": [{"name": "hi", "input": "Hi", "expect": {"output": {"contains": "Hi"}}}],
    }
    Path("suites").mkdir()
    Path("suites/kindlm.yaml").write_text(yaml.safe_dump(suite), "utf-8")
    Path("suites/shop.py").write_text(_SERVER, "utf-8")
    assert run(["test", "suites", "--quiet"]) == 0
    assert run(["gen", "--from-run", "latest", "1"]) == 1
    assert "pass --output suites, or --agent" in capsys.readouterr().err
    assert run(["gen", "--from-run", "latest", "1", "--output", "suites"]) == 0


def test_a_model_that_its_suite_serves_has_the_server_and_its_price_in_the_test(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KINDLM_DB", "kindlm.db")
    assert run(["init", "--template", "agent", "suites"]) == 0
    monkeypatch.setenv("LOCAL_AGENT_KEY", "any-key-will-do")
    assert run(["test", "suites", "--quiet"]) == 0
    assert run(["gen", "--from-run", "latest", "1"]) == 1
    told = capsys.readouterr().err
    assert "starts the model: pass --output suites, or --provider and --model" in told
    assert run(["gen", "--from-run", "latest", "1", "--output", "suites"]) == 0
    made = Path("suites/refunds_a_double_charge.yaml")
    assert yaml.safe_load(made.read_text("utf-8"))["prices"].keys() == {"acme-support-1"}
    assert run(["test", str(made), "--max-cost", "1", "--quiet"]) == 0


def test_an_agent_that_no_suite_sets_has_to_be_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("kindlm.toml").write_text('[agent]\ntype = "python"\nurl = "shop:agent"\n', "utf-8")
    Path("shop.py").write_text(
        "def agent(text):\n    return {'text': 'Sent.', 'tool_calls': []}\n", "utf-8"
    )
    said = {"name": "sent", "turns": [{"says": "Hi", "expect": [{"contains": "Sent"}]}]}
    Path("tests").mkdir()
    Path("tests/sent.yaml").write_text(yaml.safe_dump(said), "utf-8")
    assert run(["test", "--quiet"]) == 0
    assert run(["gen", "--from-run", "latest", "1"]) == 1
    assert "does not know what it ran on: pass --agent, or" in capsys.readouterr().err
    assert run(["gen", "--from-run", "latest", "1", "--agent", "shop:agent"]) == 0
