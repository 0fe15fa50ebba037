"""What stays at home: planted in every place of a run, and looked for in what is sent."""

from __future__ import annotations

import gzip
import json
import re
import sqlite3
from collections.abc import Iterator
from contextlib import closing
from dataclasses import is_dataclass
from enum import StrEnum
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

import pytest
from recorded_history import History

from kindlm.cli.app import run
from kindlm.events import EVENTS
from kindlm.events.codec import Payload, classes_in, new_event, stored_fields
from kindlm.events.execution_events import (
    PaceReason,
    ProviderPaced,
    ProviderRequested,
    ProviderResponded,
)
from kindlm.history.runs import streams_of
from kindlm.patterns import PatternError
from kindlm.stored_form import Form
from kindlm.team.bodies import NotSentError, bodies
from kindlm.team.withholding import MADE_UP, QUOTES, Withholding
from kindlm.transcript import ToolCall
from kindlm_store import NewEvent, RecordedEvent, open_reader

AGENT = """
import json, sys

for line in sys.stdin:
    request = json.loads(line)
    message = request["message"]
    if "stop" in message:
        print("{stderr}", file=sys.stderr)
        sys.exit("{last_words}")
    if "odd" in message:
        print("{odd_line}", flush=True)
    call = {"name": "lookup", "arguments": {"q": "{agent_argument}"}, "result": "{agent_result}"}
    answer = {"text": "{agent_answer} a@planted.example", "tool_calls": [call], "n": {"{key}": 1}}
    print(json.dumps(answer), flush=True)
"""

PYTHON = """
import pytest


def answer(message):
    if "raise" in message:
        raise ValueError("{exception}")
    call = {"name": "find", "result": "{python_result}"}
    return {"text": "{python_answer}", "tool_calls": [call]}


def check(answer, **more):
    return {"score": 0, "reason": "{check_reason}"}
"""

PROGRAM = """
import json, sys
print(json.dumps({"kindlm": "tool_call", "name": "look", "arguments": {"q": "{told_argument}"}}))
print(json.dumps({"kindlm": "tool_call", "wrong": "{wrong_line}"}))
print("{command_output}")
"""

SCENARIO = """
from kindlm import SyncTrial, scenario

CODE = {"type": "python", "name": "code", "url": "code_agent:answer", "path": "."}


@scenario("crashes", agent=CODE)
def test_crashes(t: SyncTrial) -> None:
    t.agent.send("{scenario_message}")
    raise RuntimeError("{crash}")


@scenario("states", agent=CODE)
def test_states(t: SyncTrial) -> None:
    reply = t.agent.send("hello")
    why = "{assertion}"
    assert reply.text == "x", why
"""


class Planted(dict[str, str]):
    """Gives each place of that name a text of its own."""

    def __missing__(self, name: str) -> str:
        self[name] = f"planted-{name.replace('_', '-')}-{len(self):02d}"
        return self[name]

    def into(self, text: str) -> str:
        """Fill the places of a program, `{name}`."""
        return re.sub(r"\{([a-z_]+)\}", lambda found: self[found[1]], text)


@pytest.fixture
def planted() -> Planted:
    return Planted()


def suite(p: Planted) -> dict[str, Any]:
    schema = {"type": "object", "required": ["a"], "properties": {"a": {"const": p["schema"]}}}
    judge = json.dumps({"score": 0.1, "reasoning": p["judge_reason"]})
    return {
        "kindlm": 1,
        "project": "shop",
        "suite": {"name": "planted", "description": p["description"]},
        "providers": {
            "fixed": {
                "type": "scripted",
                "replies": [
                    {
                        "text": p["beside_calls"],
                        "toolCalls": [{"name": "lookup", "arguments": {"q": p["argument"]}}],
                    },
                    {"text": f"{p['answer']} reach me at jane.roe@planted.example"},
                ],
            },
            "judge": {"type": "scripted", "replies": [{"text": judge}]},
            "odd": {"type": "scripted", "replies": [{"text": p["no_json"]}]},
        },
        "models": [
            {"id": "fixed", "provider": "fixed", "model": "fixed-1",
             "params": {"stopSequences": [p["stop_sequence"]]}},
            {"id": "judge", "provider": "judge", "model": "j", "role": "judge"},
            {"id": "odd", "provider": "odd", "model": "o", "role": "judge"},
        ],
        "agents": [
            {"id": "lines", "adapter": "subprocess", "command": "python lines.py",
             "env": {"SHOP": p["environment"]}},
            {"id": "code", "adapter": "python", "path": ".", "endpoint": "code_agent:answer"},
        ],
        "prompts": {
            "ask": {"system": p["system"], "user": p["user"] + " {{what}}"},
            "plain": {"user": "{{what}}"},
        },
        "tests": [
            {
                "name": "model", "prompt": "ask", "models": ["fixed"], "vars": {"what": p["var"]},
                "conversation": [{
                    "user": p["second_message"],
                    "expect": {"output": {"contains": ["x"]},
                               "guardrails": {"pii": {"enabled": True}}},
                }],
                "tools": [{
                    "name": "lookup", "description": p["tool_description"],
                    "parameters": {"type": "object", "description": p["parameters"]},
                    "defaultResponse": {"found": p["tool_result"]},
                }],
                "expect": {
                    "output": {"format": "json", "schema": schema},
                    "toolCalls": [{"tool": "lookup", "argsMatch": {"q": p["expected_argument"]}}],
                    "judge": [
                        {"criteria": "Is kind", "rubric": p["rubric"]},
                        {"ready": "relevant", "context": p["context"]},
                        {"criteria": "Is odd", "model": "odd"},
                    ],
                    "guardrails": {"pii": {"enabled": True}},
                    "python": [{"function": "code_agent.py:check"}],
                },
            },
            *(
                {"name": name, "prompt": "plain", "models": [agent],
                 "vars": {"what": f"{name} {p[name + '_message']}"},
                 "expect": {"output": {"contains": ["x"]},
                            "guardrails": {"pii": {"enabled": True}}}}
                for agent in ("lines", "code") for name in (
                    ("talk", "stop", "odd") if agent == "lines" else ("call", "raise"))
            ),
            {"name": "program", "command": "python program.py", "reportsTools": True,
             "vars": {"what": p["program_var"]}, "expect": {"output": {"contains": ["x"]}}},
        ],
        "defaults": {"judgeModel": "judge", "retries": 0},
    }  # fmt: skip


@pytest.fixture
def recorded(
    planted: Planted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[sqlite3.Connection]:
    """A history with one run of all that, and a review of it."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.delenv("CI", raising=False)
    (tmp_path / "lines.py").write_text(planted.into(AGENT))
    (tmp_path / "code_agent.py").write_text(planted.into(PYTHON))
    (tmp_path / "program.py").write_text(planted.into(PROGRAM))
    (tmp_path / "test_shop.py").write_text(planted.into(SCENARIO))
    (tmp_path / "kindlm.yaml").write_text(json.dumps(suite(planted)))
    assert run(["test", "."]) == 1
    assert run(["review", "latest", "1", "fail", "--note", planted["note"]]) == 0
    with closing(open_reader(tmp_path / ".kindlm" / "kindlm.db")) as db:
        yield db


def sent(db: sqlite3.Connection, withhold: Any) -> str:
    (run_id,) = db.execute("SELECT id FROM runs").fetchone()
    streams = streams_of(db, run_id)[1]
    return "".join(
        gzip.decompress(body).decode() for body in bodies(db, run_id, streams, {}, withhold)
    )


def test_no_planted_text_leaves(recorded: sqlite3.Connection, planted: Planted) -> None:
    stored = "".join(body for (body,) in recorded.execute("SELECT body FROM contents"))
    missing = sorted(name for name, text in planted.items() if text not in stored)
    assert missing == []
    assert len(planted) >= 40
    told = sent(recorded, Withholding(every_text=True))
    assert [name for name, text in planted.items() if text in told] == []
    assert "planted.example" not in told
    assert '"salt"' not in told
    everything = sent(recorded, Withholding())
    assert [name for name, text in planted.items() if text not in everything] == []


CHOSEN = {
    "project", "label", "group", "shard", "git.commit", "git.branch", "ci", "versions.*",
    "options.paths[]", "options.suite", "options.tests[]", "options.tags[]", "options.models[]",
    "options.keywords", "options.gate", "options.shard", "options.compat", "source_run",
    "imported_from", "suite", "front_end", "path", "config_hash", "gates[].name",
    "baseline_run", "tags[]", "tests[].name", "tests[].target", "tests[].tags[]",
    "tests[].file", "unread[]", "servers[].server", "servers[].identity", "servers[].hash",
    "cassettes[].name", "cassettes[].run", "error_code", "by", "changed[]", "gates[].suite",
    "gates[].message",
    "tests.*", "executions.*", "test", "target", "source", "purpose", "fingerprint",
    "parameters.*", "response_schema", "recorded_in", "rule", "agent", "adapter", "spans[].id",
    "spans[].parent", "spans[].kind", "tool_calls[].rule", "models_of", "callee",
    "gen_ai.evaluation.name", "failure_code", "evidence[].source", "evidence[].name", "file",
    "category", "sha256", "hint", "run", "head", "refs[]", "runs[]", "streams.*",
}  # fmt: skip
"""Keys of strings in events that a person chose or kindlm made: names, hashes, words of its own."""


def keys_of(kind: type, path: str = "") -> Iterator[str]:
    """Yield the keys under which a part of an event holds strings."""
    for field in stored_fields(kind):
        if {Form.TEXT, Form.JSON, Form.FLAG}.intersection(field.marks):
            continue
        shown, key = str(field.annotation), f"{path}{field.key or ''}"
        if "Sequence" in shown or "tuple" in shown:
            key += "[]"
        parts = [part for part in classes_in(field.annotation) if is_dataclass(part)]
        if parts:
            yield from keys_of(parts[0], f"{key}." if field.key else path)
        elif "Mapping" in shown:
            yield f"{key}.*"
        elif "str" in shown and "StrEnum" not in shown and "Form.TEXT" not in shown:
            yield key


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_of_each_string_in_an_event_it_is_known_who_chose_it(kind: type) -> None:
    known = CHOSEN | QUOTES
    unknown = [key for key in keys_of(kind) if key not in known and not MADE_UP.fullmatch(key)]
    assert not unknown, (
        f"Who chose {unknown}? Add it to CHOSEN here if kindlm or a person did, and to MADE_UP in "
        "team/withholding.py if it is a name that a model made up; store other text as content"
    )


def words_of(kind: type, path: str = "") -> Iterator[tuple[str, str]]:
    """Yield the words that kindlm itself writes into a part of an event, with their keys."""
    for field in stored_fields(kind):
        key = f"{path}{field.key or ''}"
        if "Sequence" in str(field.annotation) or "tuple" in str(field.annotation):
            key += "[]"
        if get_origin(field.annotation) is Literal:
            yield from ((key, word) for word in get_args(field.annotation))
        for part in classes_in(field.annotation):
            if issubclass(part, StrEnum):
                yield from ((key, word.value) for word in part)
            else:
                yield from words_of(part, f"{key}." if field.key else path)


def stored(event_type: str, data: dict[str, str]) -> RecordedEvent:
    """Return an event as its row holds it."""
    return RecordedEvent(
        position=1, raw_id=b"", stream="run/k3f9x2ab", version=1, type=event_type, schema=1, at="",
        subject=None, json=json.dumps(data), raw_hash=b"",
    )  # fmt: skip


@pytest.mark.parametrize("kind", EVENTS.values(), ids=EVENTS)
def test_what_kindlm_says_and_a_person_chose_stops_no_push(kind: type[Payload]) -> None:
    notes = {field.key for field in stored_fields(kind) if Form.NOTE in field.marks}
    chosen = {key for key in keys_of(kind) if key in CHOSEN and key not in notes}
    if kind is ProviderRequested:
        chosen -= {"path"}
    said = [*words_of(kind), *((key, "What a person chose ☂") for key in chosen)]
    withhold = Withholding(every_text=True)
    for key, string in said:
        problem = withhold.objection(stored(kind.type, {key: string}))
        assert problem is None, f"{problem}: give the field of {kind.__name__} another key"


def test_a_run_whose_agent_asked_to_wait_is_sent_without_content(here: History, make: Any) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()], path="my tests/größe.yaml")
    for reason in get_args(PaceReason):
        paced = ProviderPaced(callee="the agent", reason=reason, in_flight=1, pause_s=4000)
        here.log.append("run/k3f9x2ab", [new_event(paced)])
    recorded.interrupt()
    withhold = Withholding(every_text=True)
    assert '"the agent"' in bodies_of(here, withhold)
    other = NewEvent("provider.paced", {"callee": "a", "in_flight": 1, "reason": "Wait, Jane"})
    here.log.append("run/k3f9x2ab", [other])
    with pytest.raises(NotSentError, match="may quote"):
        bodies_of(here, withhold)


@pytest.mark.parametrize(
    ("purpose", "model", "is_sent"),
    [
        ("test", "our own model", True),
        ("judge", "größer", True),
        ("agent", "gpt-4o", True),
        ("agent", "", True),
        ("agent", "[redacted]-4", True),
        ("agent", "call_1|fc_2", True),
        ("agent", "Jane said no", False),
        ("agent", '{"to":"Jane"}', False),
        ("dream", "Jane said no", False),
    ],
)
def test_a_model_is_a_name_unless_a_person_chose_it(
    purpose: str, model: str, is_sent: bool
) -> None:
    withhold = Withholding(every_text=True)
    data = {"purpose": purpose, "gen_ai.request.model": model, "gen_ai.provider.name": model}
    assert (withhold.objection(stored("provider.requested", data)) is None) is is_sent


@pytest.mark.parametrize(
    ("content_type", "is_sent"),
    [
        ("text/event-stream", True),
        ("application/json; charset=utf-8", True),
        ("application/json;charset=UTF-8", True),
        ('application/json; charset="utf-8"', True),
        ("application/json; as Jane said", False),
        ("naïve", False),
    ],
)
def test_a_content_type_is_sent_however_servers_write_it(content_type: str, is_sent: bool) -> None:
    withhold = Withholding(every_text=True)
    event = stored("provider.responded", {"content_type": content_type})
    assert (withhold.objection(event) is None) is is_sent


@pytest.fixture
def here(tmp_path: Path) -> Iterator[History]:
    opened = History(tmp_path / "here.db")
    yield opened
    opened.close()


def bodies_of(here: History, withhold: Any, **more: Any) -> str:
    db = here.reader()
    streams = streams_of(db, "k3f9x2ab")[1]
    found = bodies(db, "k3f9x2ab", streams, {}, withhold, **more)
    return "".join(gzip.decompress(body).decode() for body in found)


@pytest.mark.parametrize("told", ["jane.roe@example.com", "jane\\u002eroe@example.com"])
def test_what_a_pattern_matches_stays_at_home(here: History, make: Any, told: str) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    recorded.execution(user="Where is it?", output=f'{{"to": "{told}"}}')
    recorded.interrupt()
    body = bodies_of(here, Withholding(patterns=[r"jane\.roe@"]))
    assert ("jane" in body, "Where is it?" in body) == (False, True)


ADDRESS = "jane.roe@example.com"


@pytest.mark.parametrize(
    ("text", "raw"),
    [
        (f"to {ADDRESS}", "anything in a form that is not known"),
        ("ok", json.dumps({"tokens": [{"token": char} for char in ADDRESS]})),
        ("ok", "".join(f"data: {char}\n\n" for char in ADDRESS)),
        ("ok", "".join(f"0:{json.dumps(char)}\n" for char in ADDRESS)),
    ],
)
def test_a_body_stays_with_what_was_read_from_it(
    here: History, make: Any, text: str, raw: str
) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    answers = [
        ProviderResponded(call=call, text=said, raw=body, latency_ms=1.0)
        for call, said, body in ((1, "Hello!", '{"text": "Hello!"}'), (2, text, raw))
    ]
    here.log.append("run/k3f9x2ab", [new_event(answer, subject="1.1") for answer in answers])
    recorded.interrupt()
    body = bodies_of(here, Withholding(patterns=[r"jane\.roe@"]))
    assert json.dumps(raw)[1:-1] not in body
    assert json.dumps('{"text": "Hello!"}') in body


def test_one_text_that_matches_keeps_a_body_at_home(here: History, make: Any) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    call = ToolCall("c1", "look", {"q": "shoes"})
    raw = "anything in a form that is not known"
    answer = ProviderResponded(call=1, text=ADDRESS, tool_calls=(call,), raw=raw, latency_ms=1.0)
    here.log.append("run/k3f9x2ab", [new_event(answer, subject="1.1")])
    recorded.interrupt()
    body = bodies_of(here, Withholding(patterns=[r"jane\.roe@"]))
    assert ("shoes" in body, raw in body) == (True, False)


def test_what_came_from_a_server_stays_there_to_its_last_event(here: History, make: Any) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    recorded.interrupt()
    told = [ProviderResponded(call=1, text=text, latency_ms=1.0) for text in ("there", "here")]
    here.log.append("run/k3f9x2ab", [new_event(each, subject="1.1") for each in told])
    db = here.reader()
    (last,) = db.execute("SELECT version FROM streams WHERE name = 'run/k3f9x2ab'").fetchone()
    body = bodies_of(here, Withholding(pulled={"run/k3f9x2ab": last - 1}))
    assert ('"there"' in body, '"here"' in body) == (False, True)


def test_a_pattern_that_takes_too_long_withholds(
    here: History, make: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("kindlm.patterns._PATTERN_S", 0.01)
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    recorded.execution(output="a" * 60 + "!")
    recorded.interrupt()
    body = bodies_of(here, Withholding(patterns=[r"(?:a|aa)+$"]))
    assert "a" * 60 not in body


def test_a_pattern_that_matches_in_an_event_itself_stops_the_push(here: History, make: Any) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned("about jane.roe")])
    recorded.interrupt()
    with pytest.raises(NotSentError, match=r"`tests\[\].name` matches pattern 2 of redactPatterns"):
        bodies_of(here, Withholding(patterns=["x1", "jane"]))


@pytest.mark.parametrize("name", ["I will not say it", "x" * 101, "naïve"])
def test_a_name_that_is_a_sentence_stops_the_push(here: History, make: Any, name: str) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    recorded.execution(tools=((name, {}, None),))
    recorded.interrupt()
    assert name in bodies_of(here, None)
    with pytest.raises(NotSentError, match="made up"):
        bodies_of(here, Withholding(every_text=True))


@pytest.mark.parametrize(
    ("type_", "data", "why"),
    [
        ("run.aborted", {"reason": "it printed a secret"}, "earlier kindlm"),
        ("agent.dreamt", {"of": "something"}, "does not know"),
    ],
)
def test_what_is_not_known_to_be_a_name_stops_the_push(
    here: History, make: Any, type_: str, data: dict[str, str], why: str
) -> None:
    recorded = here.run()
    recorded.suite(tests=[make.planned()])
    recorded.interrupt()
    here.log.append("run/k3f9x2ab", [NewEvent(type_, data)])
    with pytest.raises(NotSentError, match=why):
        bodies_of(here, Withholding(every_text=True))


@pytest.mark.parametrize("pattern", ["", "(", ".*"])
def test_a_pattern_that_cannot_be_meant_is_refused(pattern: str) -> None:
    with pytest.raises(PatternError):
        Withholding(patterns=[pattern])
