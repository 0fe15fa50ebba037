"""Whatever a secret is written in, nobody can put it together again from what is stored."""

from __future__ import annotations

import base64
import html
import json
import re
import urllib.parse
from collections import defaultdict
from collections.abc import Callable, Iterator
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Redactor

ENCODINGS: dict[str, Callable[[str], str]] = {
    "literal": str,
    "JSON": lambda said: json.dumps(said)[1:-1],
    "backslash u": lambda said: "".join(f"\\u{ord(one):04x}" for one in said),
    "percent": lambda said: "".join(f"%{byte:02X}" for byte in said.encode()),
    "HTML": lambda said: "".join(f"&#{ord(one)};" for one in said),
    "base64": lambda said: base64.b64encode(f"me:{said}".encode()).decode(),
    "hex": lambda said: said.encode().hex(),
}


def frames(events: list[object]) -> str:
    return "".join(f"data: {json.dumps(event)}\n\n" for event in events)


def with_others(pieces: list[str]) -> list[tuple[int, str]]:
    """Pieces of one text, with pieces of two others between them, as they happen to come."""
    told: list[tuple[int, str]] = []
    for at, piece in enumerate(pieces):
        told += [(1, f"other {at}")] * (at % 3) + [(0, piece)] + [(2, "and a third")] * (at % 2)
    return told


def likely(piece: str) -> dict[str, object]:
    return {"token": piece, "bytes": [*piece.encode()], "logprob": -0.5}


SHAPES: dict[str, Callable[[list[str]], str]] = {
    "one text": "".join,
    "a string": lambda pieces: json.dumps({"error": {"message": f"Key {''.join(pieces)}."}}),
    "a string in a string": lambda pieces: json.dumps({"of": json.dumps(["".join(pieces)])}),
    "strings": lambda pieces: json.dumps({"chunks": pieces}),
    "strings in a string": lambda pieces: json.dumps({"of": json.dumps({"chunks": pieces})}),
    "quoted strings": lambda pieces: f'It said "{json.dumps(pieces)}", and no more',
    "bytes": lambda pieces: json.dumps({"data": [*"".join(pieces).encode()]}),
    "bytes on lines": lambda pieces: json.dumps([[*one.encode()] for one in pieces], indent=1),
    "log probabilities": lambda pieces: json.dumps(
        {"content": "".join(pieces), "logprobs": [likely(one) for one in pieces]}
    ),
    "log probabilities alone": lambda pieces: json.dumps([likely(one) for one in pieces]),
    "deltas": lambda pieces: frames([{"delta": {"content": one}} for one in pieces]),
    "deltas on one line": lambda pieces: (
        'Unexpected: "' + frames([{"content": one} for one in pieces]).replace("\n\n", " ")
    ),
    "lines": lambda pieces: "\r\n".join(json.dumps({"token": one}) for one in pieces),
    "bare data": lambda pieces: "".join(f"data: {one}\n\n" for one in pieces),
    "numbered lines": lambda pieces: "".join(f"0:{json.dumps(one)}\n" for one in pieces),
    "growing": lambda pieces: frames(
        [{"content": "".join(pieces[: end + 1])} for end in range(len(pieces))]
    ),
    "texts that take turns": lambda pieces: frames(
        [{"of": [{"text": "other"}, {"text": one}, {"text": "more"}]} for one in pieces]
    ),
    "texts of indices": lambda pieces: frames(
        [{"delta": {"text": one}, "index": at} for at, one in with_others(pieces)]
    ),
    "texts of types": lambda pieces: frames(
        [{"text": one, "type": f"kind {at}"} for at, one in with_others(pieces)]
    ),
    "texts of events": lambda pieces: "".join(
        f"event: kind {at}\n{frames([{'text': one}])}" for at, one in with_others(pieces)
    ),
}


def undone(text: str) -> Iterator[str]:
    """Yield what a text says once something that it may be encoded in is undone."""
    yield urllib.parse.unquote(text)
    yield html.unescape(text)
    yield re.sub(r"\\+u([0-9a-f]{4})", lambda code: chr(int(code[1], 16)), text)
    yield text.replace('\\"', '"').replace("\\\\", "\\")
    for word in re.findall(r"[A-Za-z0-9+/]{8,}", text):
        for start in range(4):
            part = word[start:]
            yield base64.b64decode(part[: len(part) // 4 * 4]).decode("latin-1")
        if re.fullmatch("[0-9a-f]+", word):
            yield bytes.fromhex(word[: len(word) // 2 * 2]).decode("latin-1")


STRING = re.compile(r'(?<=[\[{:, ])"((?:[^"\\]|\\.)*)"(?=[\]}:, ]|$)(:)?')


def put_together(text: str) -> Iterator[str]:
    """Yield what the strings of a text say together, in each way in which they may belong."""
    together: defaultdict[object, list[str]] = defaultdict(list)
    event = last = ""
    for line in text.splitlines():
        event = line if line.startswith("event:") else event if line else ""
        apart = re.findall(r'"(?:index|type)": ("[^"]*"|\d+)', line)
        if line.startswith("data: ") and line[6:7] not in "{[":
            together["bare"].append(line[6:])
        for name, colon in STRING.findall(line):
            last = name if colon else last
            if not colon:
                for key in ("all", last, (last, event, *apart)):
                    together[key].append(name)
    for codes in re.findall(r"\[[\d,\s]+\]", text):
        together["bytes"].append("".join(chr(int(code)) for code in re.findall(r"\d+", codes)))
    for strings in together.values():
        for turns in range(1, 4):
            yield from ("".join(strings[first::turns]) for first in range(turns))


def read(text: str, depth: int = 3) -> Iterator[str]:
    """Yield all that somebody can make of a text who knows all of the shapes and encodings."""
    yield text
    if depth:
        for said in {*undone(text), *put_together(text)} - {text}:
            yield from read(said, depth - 1)


secrets = st.text(
    st.sampled_from("ABCDEFGHJKLMNPQRSTUVWXYZabcdefghjkmnpqrstuvwxyz23456789-_/+ü"),
    min_size=24,
    max_size=24,
).filter(lambda secret: len({*pairwise(secret)}) == 23)


def planted(shape: str, encoding: str, secret: str, cuts: list[int]) -> str:
    encode = ENCODINGS[encoding]
    if encoding in ("backslash u", "percent", "HTML"):
        # Such an escape of a letter is not cut itself.
        ends = sorted({min(cut, len(secret)) for cut in cuts} | {0, len(secret)})
        return SHAPES[shape]([encode(secret[start:end]) for start, end in pairwise(ends)])
    written = encode(secret)
    ends = sorted({min(cut, len(written)) for cut in cuts} | {0, len(written)})
    return SHAPES[shape]([written[start:end] for start, end in pairwise(ends)])


@pytest.mark.parametrize("shape", SHAPES)
@examples(120)
@given(
    secret=secrets,
    encoding=st.sampled_from(sorted(ENCODINGS)),
    cuts=st.lists(st.integers(1, 200), max_size=60),
)
def test_a_secret_is_not_recoverable(
    shape: str, secret: str, encoding: str, cuts: list[int]
) -> None:
    stored = Redactor(["another-secret", secret])(planted(shape, encoding, secret, cuts))
    parts = [secret[at : at + 8] for at in range(len(secret) - 7)]
    assert not [part for said in read(stored) for part in parts if part in said]
    assert "[redacted]" in stored


@pytest.mark.parametrize("shape", SHAPES)
def test_so_much_can_be_read_that_a_secret_would_be_recovered(shape: str) -> None:
    """The property above would find it if nothing was redacted."""
    secret = "Zq7xKw9vJ4mz-8ypX2hgV5tn"
    for encoding in ENCODINGS:
        text = planted(shape, encoding, secret, [3, 7, 8, 15, 17, 22, 30, 41, 60])
        assert any(secret in said for said in read(text)), encoding
