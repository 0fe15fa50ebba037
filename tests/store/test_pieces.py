"""A secret that a stream tells in pieces, a few characters with each event, leaves none of them."""

from __future__ import annotations

import base64
import json
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, EventLog, NewEvent, Redactor, Text

SECRET = "Zq7xKw9vJ4mzQ8ypX2hgV5tnW6kr"


def pieces(text: str, size: int) -> list[str]:
    return [text[start : start + size] for start in range(0, len(text), size)]


def frames(events: list[object]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


STREAMS: dict[str, Callable[[list[str]], str]] = {
    "completions": lambda said: frames(
        [{"choices": [{"index": 0, "delta": {"content": one}}]} for one in said]
    ),
    "named events": lambda said: "".join(
        f'event: content_block_delta\r\ndata: {{"delta":{json.dumps({"text": one})}}}\r\n\r\n'
        for one in said
    ),
    "lines": lambda said: "\n".join(json.dumps({"type": "token", "token": one}) for one in said),
    "bare": lambda said: "".join(f"data: {one}\n\n" for one in said),
    "strings": lambda said: "".join(f"data: {json.dumps(one)}\n\n" for one in said),
    "escaped": lambda said: (
        frames([{"text": f"\n{one}"} for one in said[:1]])
        + "".join(
            'data: {"text": "' + "".join(f"\\u{ord(c):04x}" for c in one) + '"}\n\n'
            for one in said[1:]
        )
    ),
    "two calls at once": lambda said: frames(
        [
            {"tool_calls": [{"index": index, "arguments": text}]}
            for one in said
            for index, text in enumerate((one, "other"))
        ]
    ),
    "two kinds at once": lambda said: frames(
        [{"type": kind, "text": one} for one in said for kind in ("answer", "thought")]
    ),
    "events of two names": lambda said: "".join(
        f"event: {name}\n{frames([{'text': text}])}"
        for one in said
        for name, text in (("answer", one), ("thought", "hm"))
    ),
    "base64": lambda said: frames([{"content": one} for one in pieces_of_base64(said)]),
}


def pieces_of_base64(said: list[str]) -> list[str]:
    return pieces(base64.b64encode("".join(said).encode()).decode(), len(said[0]))


def written(text: str) -> list[str]:
    """What stands in the quotation marks and lines of a stream, without escapes."""
    return text.encode().decode("unicode_escape").replace('"', "\n").split("\n")


@pytest.mark.parametrize("stream", STREAMS.values(), ids=STREAMS)
@examples(40)
@given(size=st.integers(2, 20), before=st.integers(0, 20), after=st.integers(0, 20))
@example(size=4, before=0, after=0)
def test_no_piece_of_a_secret_is_left(
    stream: Callable[[list[str]], str], size: int, before: int, after: int
) -> None:
    said = pieces("_" * before + SECRET + "_" * after, size)
    assert_none_left(said, Redactor([SECRET])(stream(said)))


@pytest.mark.parametrize("name", ["completions", "named events", "lines", "bare", "strings"])
@pytest.mark.parametrize("size", [3, 4, 14])
def test_no_piece_is_left_of_a_stream_that_is_quoted_on_one_line(name: str, size: int) -> None:
    said = pieces(SECRET, size)
    assert_none_left(said, Redactor([SECRET])(" ".join(STREAMS[name](said).split())))


def assert_none_left(said: list[str], redacted: str) -> None:
    assert "[redacted]" in redacted
    left = "".join(written(redacted))
    assert not any(one in left for one in pieces(SECRET, 8)[:3])
    assert not any(one in left for one in said if len(one) > 2 and one in SECRET)


@pytest.mark.parametrize("name", ["completions", "lines", "bare", "strings", "two calls at once"])
def test_a_stream_that_was_cut_leaves_no_more_than_seven_characters(name: str) -> None:
    said = pieces(f"It is {SECRET}.", 4)
    whole = STREAMS[name](said)
    redact = Redactor([SECRET])
    for end in range(len(whole)):
        left = redact(whole[:end])
        told = [one for one in said[1:] if f'"{one}' in left or f"data: {one}" in left]
        assert len("".join(told)) < 8 + 4, left


def test_other_pieces_stay() -> None:
    stream = STREAMS["completions"]
    redacted = Redactor([SECRET])(stream(["It is ", SECRET[:9], SECRET[9:] + " in", "deed"]))
    assert redacted == stream(["It is ", "[redacted]", "[redacted] in", "deed"])


@pytest.mark.parametrize("name", sorted(STREAMS.keys() - {"escaped"}))
def test_a_stream_without_a_secret_is_left_alone(name: str) -> None:
    text = STREAMS[name](pieces(f"It is {SECRET[:7]} of {SECRET[1:]}.", 3))
    assert Redactor([SECRET])(text) == text


@pytest.mark.parametrize("name", sorted(STREAMS))
def test_no_piece_reaches_the_file(name: str, tmp_path: Path) -> None:
    """All texts of an event are looked at together: what stands before a stream is none of it."""
    said = pieces(SECRET, 4)
    before = '{"text": "unfinished, data: {'
    event = NewEvent("planted.event", {"a": Text(before), "raw": Text(STREAMS[name](said))})
    with EventLog.open(tmp_path / "log.db", redact=Redactor([SECRET])) as log:
        log.submit(Append("s", [event])).result()
        (stored,) = log.read()
        bodies = log.texts([one["$ref"] for one in stored.data.values()]).values()
    assert before in bodies
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for one in (said[2], said[4], said[-1]):
        assert one.encode() not in files
