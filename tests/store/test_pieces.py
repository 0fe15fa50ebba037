"""A text that says a secret in pieces, a few characters with each string, is withheld whole."""

from __future__ import annotations

import base64
import itertools
import json
from collections.abc import Callable, Iterable
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


TEXTS: dict[str, Callable[[list[str]], str]] = {
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
    "tokens of an answer": lambda said: json.dumps(
        {
            "choices": [
                {
                    "message": {"content": "".join(said)},
                    "logprobs": {"content": [{"token": one, "logprob": -0.1} for one in said]},
                }
            ]
        }
    ),
    "tokens among likely ones": lambda said: json.dumps(
        {
            "text": "".join(said),
            "tokens": [
                {"token": one, "top_logprobs": [{"token": one}, *[{"token": "x y"}] * (at % 3)]}
                for at, one in enumerate(said)
            ],
        }
    ),
    "bytes of tokens": lambda said: json.dumps(
        [{"bytes": [*one.encode()], "logprob": -0.1} for one in said], indent=1
    ),
    "bytes of tokens in events": lambda said: frames([{"bytes": [*one.encode()]} for one in said]),
    "bytes": lambda said: json.dumps({"data": [*"".join(said).encode()]}),
    "an array of events": lambda said: json.dumps([{"text": one} for one in said]),
    "an array of events on lines": lambda said: json.dumps([{"a": one} for one in said], indent=1),
    "an array of strings": lambda said: json.dumps({"chunks": said}),
    "an array of strings in a string": lambda said: json.dumps(
        {"items": json.dumps({"output": json.dumps(said)})}
    ),
    "numbered lines": lambda said: "".join(f"0:{json.dumps(one)}\n" for one in said),
    "pairs": lambda said: "".join(json.dumps(["delta", one]) + "\n" for one in said),
    "two choices in an event": lambda said: frames(
        [
            {"choices": [{"index": at, "content": text} for at, text in enumerate(("ok", one))]}
            for one in said
        ]
    ),
    "names that take turns": lambda said: frames(
        [{"ab"[at % 2]: one} for at, one in enumerate(said)]
    ),
    "data on two lines": lambda said: "".join(
        f'data: {{"text":\ndata: {json.dumps(one)}}}\n\n' for one in said
    ),
}


def pieces_of_base64(said: list[str]) -> list[str]:
    return pieces(base64.b64encode("".join(said).encode()).decode(), len(said[0]) or 1)


@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@examples(40)
@given(size=st.integers(2, 20), before=st.integers(0, 20), after=st.integers(0, 20))
@example(size=3, before=4, after=0)
@example(size=4, before=0, after=0)
def test_a_text_whose_strings_spell_a_secret_is_withheld(
    text: Callable[[list[str]], str], size: int, before: int, after: int
) -> None:
    said = pieces("_" * before + SECRET + "_" * after, size)
    assert Redactor(["another-secret-1", SECRET])(text(said)) == "[redacted]"


@pytest.mark.parametrize("name", ["completions", "named events", "lines", "bare", "strings"])
@pytest.mark.parametrize("size", [3, 4, 14])
def test_so_is_a_stream_that_is_quoted_on_one_line(name: str, size: int) -> None:
    stream = TEXTS[name](pieces(SECRET, size))
    assert Redactor([SECRET])(" ".join(stream.split())) == "[redacted]"


CUT = ("completions", "lines", "bare", "strings", "two calls at once")
CUT += ("an array of strings", "an array of events", "numbered lines")


@pytest.mark.parametrize("name", CUT)
def test_a_text_that_was_cut_leaves_no_more_than_seven_characters(name: str) -> None:
    said = pieces(f"It is {SECRET}.", 4)
    whole = TEXTS[name](said)
    redact = Redactor([SECRET])
    for end in range(len(whole)):
        for mark in ("", "…"):
            left = redact(whole[:end] + mark)
            told = [one for one in said[1:] if f'"{one}' in left or f"data: {one}" in left]
            assert len("".join(told)) < 8 + 4, left


def among_others(said: list[str], distances: Iterable[int]) -> str:
    pairs = zip(said, distances, strict=False)
    return json.dumps([one for piece, far in pairs for one in (piece, *"abcdefg"[: far - 1])])


@pytest.mark.parametrize("size", [3, 4, 7])
def test_strings_at_equal_distances_spell_a_beginning(size: int) -> None:
    said = pieces(SECRET[:8], size)
    assert Redactor([SECRET])(among_others(said, itertools.repeat(2))) == "[redacted]"


def test_strings_at_different_distances_have_to_spell_twice_as_much() -> None:
    redact, said = Redactor([SECRET]), pieces(SECRET[:16], 3)
    left = among_others(said[:5], itertools.count(2))
    assert redact(left) == left
    assert redact(among_others(said, itertools.count(2))) == "[redacted]"


@pytest.mark.parametrize("name", ["lines", "bare", "strings", "an array of strings"])
@pytest.mark.parametrize("length", range(1, 8))
def test_a_few_characters_of_a_secret_may_stand_in_another_string_than_its_rest(
    name: str, length: int
) -> None:
    for at in (length, len(SECRET) - length):
        said = [f"The key: {SECRET[:at]}", f"{SECRET[at:]} is it."]
        assert Redactor([SECRET])(TEXTS[name](said)) == "[redacted]"


def test_a_text_may_begin_within_quotation_marks() -> None:
    assert Redactor([SECRET])('" "'.join(pieces(SECRET, 4))) == "[redacted]"


def test_a_text_may_hold_many_data_in_data() -> None:
    assert Redactor([SECRET])("data: " * 5_000) == "data: " * 5_000


@pytest.mark.parametrize("name", ["an array of strings", "an array of events"])
@pytest.mark.parametrize("before", ['It said "', 'An answer of 5" as {"at": "', "'", "Events: "])
def test_json_that_is_quoted_is_read_all_the_same(name: str, before: str) -> None:
    said = TEXTS[name](pieces(SECRET, 3))
    redact = Redactor([SECRET])
    assert redact(f'{before}{said}"') == "[redacted]"
    assert redact(json.dumps({"message": f"{before}{said}"})) == "[redacted]"


OTHER_SECRETS = ["Gr\u00fc\u00dfe-an-\u732b-42", "https://me:Zq7xKw9v@host/", "Zq/xKw'9v;J4\\mz-Q8"]


@pytest.mark.parametrize("secret", OTHER_SECRETS)
@pytest.mark.parametrize("text", TEXTS.values(), ids=TEXTS)
@pytest.mark.parametrize("size", [2, 3, 5])
def test_so_it_is_for_secrets_of_other_letters(
    text: Callable[[list[str]], str], secret: str, size: int
) -> None:
    assert Redactor([secret])(text(pieces(secret, size))) == "[redacted]"


@pytest.mark.parametrize("size", [1, 2, 3])
def test_punctuation_beside_pieces_does_not_hide_them(size: int) -> None:
    said = [f"{{{one}, " for one in pieces(SECRET, size)]
    assert Redactor([SECRET])(json.dumps(said)) == "[redacted]"


class Thorough(Redactor):
    """Compares all strings, without the quick check before."""

    def _may_spell(self, text: str) -> bool:
        return bool(text)


few = st.text("ab1-:, ", min_size=8, max_size=16)
WRITTEN = [*TEXTS.values(), '"\r'.join, '"'.join, lambda said: '"' + "\r".join(said)]


@examples(400)
@given(
    secret=few | st.sampled_from([*OTHER_SECRETS, SECRET]),
    write=st.sampled_from(WRITTEN),
    cuts=st.lists(st.integers(1, 15), min_size=1),
    between=st.lists(st.tuples(st.integers(0, 15), st.text("ab1-:, x", max_size=3)), max_size=9),
)
def test_the_quick_check_misses_nothing_that_strings_spell(
    secret: str,
    write: Callable[[list[str]], str],
    cuts: list[int],
    between: list[tuple[int, str]],
) -> None:
    places = sorted({0, *cuts, len(secret)})
    said = [secret[start:end] for start, end in itertools.pairwise(places)]
    for place, other in between:
        said.insert(place, other)
    text, secrets = write(said), [secret, "another-secret-1"]
    assert Redactor(secrets)(text) == Thorough(secrets)(text)


def test_bytes_may_end_within_a_character() -> None:
    said = "key-\u732b\u732b-\u00fc-42".encode()
    for size in range(1, 6):
        tokens = [{"bytes": [*said[at : at + size]]} for at in range(0, len(said), size)]
        assert Redactor([said.decode()])(json.dumps(tokens)) == "[redacted]"


@pytest.mark.parametrize("name", sorted(TEXTS.keys() - {"escaped"}))
@pytest.mark.parametrize("size", [1, 3, 9])
def test_a_text_whose_strings_spell_no_secret_is_left_alone(name: str, size: int) -> None:
    # Base64 of six characters has eight.
    length = 5 if name == "base64" else 7
    text = TEXTS[name](pieces(f"It is {SECRET[:length]} of {SECRET[1:]}.", size))
    assert Redactor([SECRET, "password", "another-secret"])(text) == text


@pytest.mark.parametrize("name", sorted(TEXTS))
def test_nothing_of_a_text_that_is_withheld_reaches_the_file(name: str, tmp_path: Path) -> None:
    """Whatever the texts beside it hold: quotation marks, parts of JSON, and an event cut off."""
    said = pieces(SECRET, 4)
    before = '{"text": "unfinished, data: {'
    texts = {
        "a": Text('5" and {"text": "unfinished'),
        "before": Text(before),
        "raw": Text(TEXTS[name](said)),
    }
    with EventLog.open(tmp_path / "log.db", redact=Redactor([SECRET])) as log:
        log.submit(Append("s", [NewEvent("planted.event", {**texts, "c": Text('"')})])).result()
        (stored,) = log.read()
        bodies = {log.text(one["$ref"]) for one in stored.data.values()}
        assert {"[redacted]", before} < bodies
    files = b"".join(path.read_bytes() for path in tmp_path.iterdir() if path.is_file())
    for one in (said[2], said[4], said[-1]):
        assert one.encode() not in files
        assert b", ".join(b"%d" % code for code in one.encode()) not in files
