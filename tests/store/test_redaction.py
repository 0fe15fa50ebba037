"""Secrets never reach the file, in whatever form they come."""

from __future__ import annotations

import base64
import html
import json
import re
import tempfile
import urllib.parse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from examples import examples
from kindlm_store import Append, EventLog, NewEvent, Redactor, Text
from kindlm_store.new_event import redacted
from kindlm_store.redaction import MIN_LENGTH, REDACTED


def secrets_of(characters: st.SearchStrategy[str]) -> st.SearchStrategy[str]:
    # A part of the mark is not a secret.
    return st.text(characters, min_size=8, max_size=40).filter(lambda s: s not in "[redacted]")


# Bytes of Latin-1 that are valid UTF-8 are read as UTF-8.
CONTINUING = "".join(map(chr, range(0x80, 0xC0)))
secrets = secrets_of(st.characters(codec="utf-8", exclude_characters=f"\0{CONTINUING}"))
ascii_secrets = secrets_of(st.characters(min_codepoint=32, max_codepoint=126))
texts = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=20)
# The beginning of an escape is read together with what follows it.
befores = st.text(st.characters(codec="utf-8", exclude_characters="\0\\%&"), max_size=20)


def percent_all(text: str, *, upper: bool) -> str:
    codes = "".join(f"%{byte:02x}" for byte in text.encode())
    return codes.upper() if upper else codes


def percent_some(text: str) -> str:
    return "".join(
        character if index % 2 else percent_all(character, upper=bool(index % 4))
        for index, character in enumerate(text)
    )


def backslash_u(text: str) -> str:
    raw = text.encode("utf-16-be")
    return "".join(f"\\u{raw[i : i + 2].hex()}" for i in range(0, len(raw), 2))


def json_string(text: str, *, ascii_only: bool) -> str:
    return json.dumps(text, ensure_ascii=ascii_only)[1:-1]


def backslash_x(text: str, encoding: str) -> str:
    """Write a text as many languages do in their literals; what an encoding lacks stays."""
    return "".join(
        "".join(f"\\x{byte:02x}" for byte in character.encode(encoding, "ignore")) or character
        for character in text
    )


ENCODINGS: dict[str, Callable[[str], str]] = {
    "literal": lambda s: s,
    "JSON": lambda s: json_string(s, ascii_only=False),
    "JSON, ASCII": lambda s: json_string(s, ascii_only=True),
    "JSON in JSON": lambda s: json_string(json_string(s, ascii_only=False), ascii_only=False),
    "JSON in JSON, ASCII": lambda s: json_string(json_string(s, ascii_only=True), ascii_only=True),
    "JSON with escaped slashes": lambda s: json_string(s, ascii_only=False).replace("/", "\\/"),
    "percent, lower case": lambda s: percent_all(s, upper=False),
    "percent, upper case": lambda s: percent_all(s, upper=True),
    "percent, some": percent_some,
    "percent, twice": lambda s: urllib.parse.quote(urllib.parse.quote(s, safe=""), safe=""),
    "quote": urllib.parse.quote,
    "quote_plus": urllib.parse.quote_plus,
    "backslash u": backslash_u,
    "backslash x of bytes": lambda s: backslash_x(s, "utf-8"),
    "backslash x of characters": lambda s: backslash_x(s, "latin-1"),
    "backslash x in JSON": lambda s: json_string(backslash_x(s, "utf-8"), ascii_only=True),
    "bytes of Python": lambda s: repr(s.encode())[2:-1],
    "HTML": html.escape,
    "HTML, twice": lambda s: html.escape(html.escape(s)),
    "HTML, numbers": lambda s: "".join(f"&#{ord(character)};" for character in s),
    "HTML in JSON": lambda s: json_string(html.escape(s), ascii_only=True),
    "hex": lambda s: s.encode().hex(),
    "HEX": lambda s: s.encode().hex().upper(),
}


PLACED = {"literal", "hex", "HEX", "HTML", "quote", "quote_plus", "JSON", "JSON, ASCII"} | {
    "JSON with escaped slashes"
}
"""The encodings in which the place of a secret is known; of others the whole text may go."""


def withheld(text: str, encoding: str) -> set[str]:
    """What may be left of a text."""
    return {text} if encoding in PLACED else {text, "[redacted]"}


def survives(secret: str, text: str) -> bool:
    """Whether anybody can still read the secret: decode the text in all ways, look for it."""
    decodings: list[Callable[[str], str]] = [
        lambda t: t,
        urllib.parse.unquote,
        lambda t: urllib.parse.unquote(urllib.parse.unquote(t)),
        urllib.parse.unquote_plus,
        lambda t: json.loads(f'"{t}"'),
        lambda t: json.loads(f'"{json.loads(chr(34) + t + chr(34))}"'),
        html.unescape,
        lambda t: html.unescape(html.unescape(t)),
        lambda t: bytes.fromhex(t).decode(),
        lambda t: re.sub(r"\\x(..)", lambda code: chr(int(code[1], 16)), t),
        lambda t: (
            re.sub(r"\\x(..)", lambda code: chr(int(code[1], 16)), t).encode("latin-1").decode()
        ),
    ]
    for decode in decodings:
        try:
            if secret in decode(text):
                return True
        except ValueError:
            continue
    return False


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@examples(30)
@given(secret=secrets | ascii_secrets, before=befores, after=texts)
@example(secret='a b/c+"\\%\n\t', before="", after="")
@example(secret="%41%41%41%41", before="", after="")
def test_no_encoding_of_a_secret_survives(
    encode: Callable[[str], str], secret: str, before: str, after: str
) -> None:
    encoded = encode(secret)
    text = before + encoded + after
    redacted = Redactor([secret])(text)
    assert encoded not in redacted
    assert len(redacted) < len(text) or "[redacted]" in redacted
    if not before and not after:
        assert not survives(secret, redacted)


@examples(80)
@given(secret=secrets | ascii_secrets, before=st.binary(max_size=9), after=st.binary(max_size=9))
@pytest.mark.parametrize("alphabet", ["standard", "urlsafe"])
def test_no_secret_survives_in_base64_wherever_it_begins(
    alphabet: str, secret: str, before: bytes, after: bytes
) -> None:
    raw = before + secret.encode() + after
    encode = base64.b64encode if alphabet == "standard" else base64.urlsafe_b64encode
    redacted = Redactor([secret])(f"Basic {encode(raw).decode()}")
    assert "[redacted]" in redacted
    left = redacted.removeprefix("Basic ").split("[redacted]")
    # What is left on either side says less than two bytes of the secret.
    assert all(
        len(part) <= -(-(len(side) + 1) * 4 // 3) + 3
        for part, side in zip(left, (before, after), strict=False)
    )


CUT_ENDS = ["", "…", "...", '"', "\\u2026", '\\\\u2026"}', '\\"', "… and so on"]


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
@examples(30)
@given(
    secret=secrets | ascii_secrets,
    before=befores,
    end=st.sampled_from(CUT_ENDS),
    data=st.data(),
)
def test_no_beginning_of_a_secret_survives_a_cut(
    encode: Callable[[str], str], secret: str, before: str, end: str, data: st.DataObject
) -> None:
    assume(":" not in secret)  # what stands before one may be public
    encoded = encode(secret)
    cut = data.draw(st.integers(MIN_LENGTH, len(encoded)))
    # Python quotes a part in other ways than the whole.
    forms = (encode(secret[:length]) for length in range(MIN_LENGTH, len(secret) + 1))
    whole = [len(form) for form in forms if encoded.startswith(form)]
    assume(any(MIN_LENGTH <= length <= cut for length in whole))
    redacted = Redactor([secret])(f"{before} {encoded[:cut]}{end}")
    # The mark itself may contain the secret's beginning, such as that of "redacted0".
    left = redacted.removeprefix(f"{before} ").split("[redacted]")
    assert not any(encoded[:MIN_LENGTH] in part for part in left)
    assert "[redacted]" in redacted


@pytest.mark.parametrize(("secret", "cut"), [("\x07\x1f000000\x070", 4), ("00\x1f000Ā\x1f0", 6)])
def test_no_beginning_of_a_secret_survives_if_its_end_is_like_its_beginning(
    secret: str, cut: int
) -> None:
    written = "".join(f"\\u{ord(char):04x}" for char in secret)[:-cut]
    assert Redactor([secret])(written) == "[redacted]"


@examples(80)
@given(
    secret=secrets | ascii_secrets,
    before=st.binary(max_size=9),
    end=st.sampled_from(CUT_ENDS),
    data=st.data(),
)
@pytest.mark.parametrize("alphabet", ["standard", "urlsafe"])
def test_no_beginning_of_a_secret_in_base64_survives_a_cut(
    alphabet: str, secret: str, before: bytes, end: str, data: st.DataObject
) -> None:
    assume(":" not in secret)  # what stands before one may be public
    encode = base64.b64encode if alphabet == "standard" else base64.urlsafe_b64encode
    encoded = encode(before + secret.encode()).decode().rstrip("=")
    # Where the first character begins that the secret fixes alone.
    start = -(-len(before) * 8 // 6)
    last = (len(before) + len(secret.encode())) * 8 // 6
    cut = data.draw(st.integers(start + MIN_LENGTH, last))
    redacted = Redactor([secret])(f"Basic {encoded[:cut]}{end}")
    assert redacted.endswith(f"[redacted]{end}")
    # Of a secret that repeats itself, a later beginning may have been found.
    left = redacted.removesuffix(end).replace("[redacted]", "")
    assert len(left) < len("Basic ") + start + MIN_LENGTH


def test_the_beginning_of_a_secret_goes_wherever_the_text_was_cut() -> None:
    redact = Redactor(["sk-planted-0123456789"])
    assert redact('{"a": "sk-planted-01…", "b": 1}') == '{"a": "[redacted]…", "b": 1}'
    assert (
        redact("sk-plan… sk-planted... sk-planted- is") == "sk-plan… [redacted]... sk-planted- is"
    )


@pytest.mark.parametrize(
    ("value", "public"),
    [
        ("customer-support:Zx81kkqq-4711", "customer-support:"),
        ("https://hooks.example.com/T012-B345-0123456789", "https://hooks.example.com"),
        ("postgresql://shop:Zx81kkqq-4711@db/shop", "postgresql://"),
    ],
)
@pytest.mark.parametrize("name", sorted(ENCODINGS))
def test_a_user_name_and_a_host_are_no_beginning_of_a_secret(
    name: str, value: str, public: str
) -> None:
    encode, redact = ENCODINGS[name], Redactor([value])
    for end in range(8, len(public) + 1):
        text = json.dumps({"name": encode(value[:end]), "next": 1})
        assert redact(text) == text
    assert redact(f'"{encode(value)}"') in withheld('"[redacted]"', name)
    assert redact(f'"{encode(value[:-1])}…') in withheld('"[redacted]…', name)


@pytest.mark.parametrize("encode", [base64.b64encode, base64.urlsafe_b64encode])
def test_a_user_name_in_base64_is_no_beginning_of_a_secret(
    encode: Callable[[bytes], bytes],
) -> None:
    name = "customer-support:"
    value = f"{name}~~~???>>>-4711"  # the two alphabets differ
    redact, encoded, public = Redactor([value]), encode(value.encode()).decode(), len(name) * 4 // 3
    for end in range(8, public):
        assert redact(f"Basic {encoded[:end]}…") == f"Basic {encoded[:end]}…"
    # The last character also encodes bits of what follows.
    for end in range(public + MIN_LENGTH, len(value) * 4 // 3 + 1):
        assert redact(f"Basic {encoded[:end]}…") == "Basic [redacted]…"


def test_base64_in_a_url_that_was_cut_is_found() -> None:
    secret = "~~~???>>>secret-key"
    encoded = urllib.parse.quote(base64.b64encode(secret.encode()), safe="")
    assert encoded.startswith("fn5%2BPz8%2F")
    for end in range(len("fn5%2BPz8%2F"), len(encoded)):
        assert Redactor([secret])(f"key={encoded[:end]}…") == "[redacted]"


PLAIN_ENDS = ["\n", "\r\n", "\r", "\n  ", "\r\n\t", "\n\n"]
ESCAPED_ENDS = ["\\n", "\\r\\n", "\\\\r\\\\n", "\\u000a", "\\x0A", "%0D%0A", "%250a"]


@examples(40)
@given(
    secret=secrets | ascii_secrets,
    before=st.binary(max_size=90),
    after=st.binary(max_size=90),
    width=st.sampled_from([1, 7, 20, 64, 76]),
    end=st.sampled_from(PLAIN_ENDS + ESCAPED_ENDS),
)
@pytest.mark.parametrize(
    "encode",
    [
        lambda raw: base64.b64encode(raw).decode(),
        lambda raw: base64.urlsafe_b64encode(raw).decode(),
        lambda raw: json_string(base64.b64encode(raw).decode(), ascii_only=True).replace(
            "/", "\\/"
        ),
        lambda raw: urllib.parse.quote(base64.b64encode(raw), safe=""),
        lambda raw: raw.hex(),
    ],
    ids=["base64", "base64url", "base64 with escaped slashes", "base64 in a URL", "hex"],
)
def test_no_secret_survives_in_lines_of_an_encoding(
    encode: Callable[[bytes], str], secret: str, before: bytes, after: bytes, width: int, end: str
) -> None:
    # The encoded characters, an escape being one.
    units = re.findall(r"\\/|%..|.", encode(before + secret.encode() + after))
    lines = ["".join(units[i : i + width]) for i in range(0, len(units), width)]
    redacted = Redactor([secret])(end.join(lines))
    assert "[redacted]" in redacted
    # Of the text that is left, the neighbours alone remain, and up to a byte on either side.
    left = len(re.findall(r"\\/|%[^0].|.", redacted.replace(end, "").replace("[redacted]", "")))
    assert left <= len(encode(before + b"  ")) + len(encode(after + b"  ")) + 8


def test_lines_of_an_encoding_without_a_secret_are_left_alone() -> None:
    text = base64.encodebytes(bytes(range(256)) * 40).decode()
    assert Redactor(["planted-0123456789"])(json.dumps(text) + text) == json.dumps(text) + text


def test_base64_inside_a_url_is_found() -> None:
    secret = "~~~???>>>secret-key"
    encoded = base64.b64encode(f"user:{secret}".encode()).decode()
    assert "[redacted]" in Redactor([secret])(urllib.parse.quote(encoded, safe=""))


@given(texts)
def test_a_text_without_secrets_is_left_alone(text: str) -> None:
    secret = "planted-0123456789"
    assume(secret not in text)
    assert Redactor([secret])(text) == text


def test_short_values_are_words_and_not_secrets() -> None:
    assert Redactor(["secret", "", "1234567"])("secret 1234567") == "secret 1234567"


@pytest.mark.parametrize(
    ("secret", "text"),
    [
        ("passwort\u00e4\u00f6\u00fc123", "key=passwort%c3%\u2026"),
        ("sk-proj-abcdefghijklmnop", "Invalid key sk-proj-abcdefghij%E2%80%A6, sorry"),
        ("sk-proj-abcdefghijklmnop", "Invalid key \\u201csk-proj-abcdefghij\\u201d, sorry"),
        ("sk-proj-abcdefghijklmnop", "https://h/x?k=sk-proj-abcdefghij%5Cu2026&z=2"),
    ],
)
def test_what_says_that_a_text_was_cut_may_be_escaped(secret: str, text: str) -> None:
    assert secret[:8] not in Redactor([secret])(text)


@pytest.mark.parametrize("escaped", ["nicolas%2fp%40ss%2bword-12", "nicolas&#47;p&#64;ss+word-12"])
def test_a_backslash_before_a_secret_hides_nothing(escaped: str) -> None:
    # Together with the first letter of the secret, it reads as the end of a line.
    assert Redactor(["nicolas/p@ss+word-12"])(f"C:\\keys\\{escaped}") == "[redacted]"


def test_plus_signs_may_stand_for_some_of_the_spaces() -> None:
    text = "a+battery%20horse+staple"
    assert Redactor(["a battery horse staple"])(text) == "[redacted]"


def test_a_text_with_more_levels_of_escapes_than_are_decoded_is_withheld() -> None:
    redact = Redactor(["top-secret-value"])
    few, many = (f"a%{'25' * levels}41" for levels in (3, 20))
    assert (redact(few), redact(many)) == (few, REDACTED)


def test_a_number_of_html_may_lack_its_semicolon() -> None:
    text = "".join(f"&#{ord(each)}" for each in "hunter2-hunter3")
    assert Redactor(["hunter2-hunter3"])(f"It is {text} today; R&D says so") == "[redacted]"


def test_a_reference_of_html_may_have_many_zeros() -> None:
    secret = "sk-proj-abcdefghijklmnop"
    redact = Redactor([secret])
    for form in ("&#{:012d};", "&#x{:012x};"):
        assert redact("".join(form.format(ord(letter)) for letter in secret)) == "[redacted]"
    assert redact(f"&#{'0' * 5_000};") == f"&#{'0' * 5_000};"


def test_a_beginning_that_is_escaped_goes_beside_another_secret_that_is_not() -> None:
    redact = Redactor(["2iurJUmyG0JT1KfPUwuIWV7L", "PUwuIWV7Labcd"])
    assert redact("\\u0032\\u0069urJUmyG0JT1KfPUwuIWV7...") == "[redacted]"
    # So it does beside what looks like its own beginning.
    redact = Redactor(["\U0001f511b\U0001f511a\U0001f600bbaaa\U0001f511bb"])
    assert redact(r"\ud83d\udd11\u0062\ud83d\udd11a\ud83d\ude00bba\ud83d\ude...") == "[redacted]"


def test_two_characters_of_a_secret_before_an_accent_are_no_beginning_of_it() -> None:
    text = json.dumps({"name": "caf\u00e9", "at": "Orl\u00e9ans"})
    assert Redactor(["af3e59930a972e007139ec0f"])(text) == text


@pytest.mark.parametrize("indent", [None, 2])
def test_json_is_left_alone_that_begins_like_a_secret_in_json(indent: int | None) -> None:
    account = {"type": "service_account", "private_key": "MIIEvQIBADANBgkqhkiG9w0BAQ"}
    secret = json.dumps(account, indent=indent)
    redact = Redactor([secret])
    inner = json.dumps({"type": "object", "required": ["type"]}, indent=indent)
    for text in (inner, json.dumps({"content": inner}), json.dumps([json.dumps([inner])])):
        assert redact(text) == text
    assert redact(json.dumps({"content": secret})) == '{"content": "[redacted]"}'
    assert redact(f"{secret[:60]}…") == "[redacted]…"


@pytest.mark.parametrize("encoding", ["backslash u", "percent, lower case", "HTML, numbers"])
def test_an_escaped_secret_beside_a_plain_one_is_found_though_they_overlap(encoding: str) -> None:
    secret = "abababab"
    escaped = ENCODINGS[encoding](secret)
    for text in (secret + escaped, escaped + secret):
        assert Redactor([secret])(text) == "[redacted]"


def test_an_escaped_secret_is_found_beside_one_that_decoding_destroys() -> None:
    secret = "bNzyAhiR2kpp"
    # A backslash and the first letter of the secret, or a percent sign and two digits, are escapes.
    in_path, in_hex = f"C:\\keys\\{secret}", f"%{secret.encode().hex()}"
    for encoding, beside in (("backslash u", in_path), ("percent, lower case", in_hex)):
        assert Redactor([secret])(f"{ENCODINGS[encoding](secret)} {beside}") == "[redacted]"


def test_a_secret_with_a_quotation_mark_leaves_the_rest_of_the_text() -> None:
    secret = 'tok-5d1f0a77"b2xQ'
    # The decoded secret also looks like its JSON form, cut at the quotation mark.
    redact = Redactor([secret])
    assert redact(f"refund?key={urllib.parse.quote(secret)}&id=7") == "refund?key=[redacted]&id=7"


def test_a_longer_secret_that_contains_another_leaves_nothing_behind() -> None:
    redact = Redactor(["0123456789", "0123456789abcdef"])
    assert redact("0123456789abcdef 0123456789") == "[redacted] [redacted]"


def test_a_secret_that_contains_another_leaves_nothing_behind_where_it_is_escaped() -> None:
    key = {"client": "me", "secret": "s3cr3tcl13nt", "private": "MIIEvQIBADANBgkqhkiG9w0"}
    redact = Redactor([json.dumps(key), "s3cr3tcl13nt"])
    assert redact(json.dumps({"key": json.dumps(key)})) == '{"key": "[redacted]"}'


def test_a_beginning_that_contains_a_secret_leaves_nothing_behind() -> None:
    redact = Redactor(["abcdefgh", 'abcdefgh"restofsecret'])
    assert redact('"abcdefgh\\"restof…"') == '"[redacted]…"'


def without_backslashes(text: str) -> str:
    """A secret may end in one: what is left of its escapes is not told from what they escape.

    Nor is a digit that it begins with, and that a percent sign escapes with the same digit. Two
    that share an escaped backslash may each be found with half of its escapes.
    """
    left = text.replace("\\", "").replace("%3[", "[")
    return re.sub(r"(?:\[redacted\])+", "[redacted]", left)


OVERLAPPING = ["literal", "JSON", "JSON in JSON", "quote", "percent, upper case", "HTML"]


@pytest.mark.parametrize("encoding", OVERLAPPING)
@examples(40)
@given(whole=secrets | ascii_secrets, behind=ascii_secrets, data=st.data())
def test_secrets_that_overlap_leave_nothing_behind(
    encoding: str, whole: str, behind: str, data: st.DataObject
) -> None:
    encode = ENCODINGS[encoding]
    together = whole + behind
    starts = st.integers(0, len(together) - MIN_LENGTH)
    parts = [
        together[start : data.draw(st.integers(start + MIN_LENGTH, len(together)))]
        for start in data.draw(st.lists(starts, max_size=4))
    ]
    # One of them reaches from the one into the other, so that all are adjacent.
    across = together[len(whole) - 1 :]
    redact = Redactor([whole, across, *parts])
    text = f"\0{encode(together)}\0"
    left = {"\0[redacted]\0", "[redacted]"}
    assert without_backslashes(redact(text)) in left
    # The longest alone takes along what it holds.
    within = [part for part in parts if part in whole]
    alone = Redactor([whole, *within])(f"\0{encode(whole)}\0")
    assert without_backslashes(alone) in left


@examples(80)
@given(
    values=st.lists(secrets | ascii_secrets, min_size=1, max_size=4),
    encoding=st.sampled_from(sorted(ENCODINGS)),
    data=st.data(),
)
def test_a_text_without_its_secrets_stays_as_it_is(
    values: list[str], encoding: str, data: st.DataObject
) -> None:
    redact = Redactor(values)
    pieces = st.sampled_from([ENCODINGS[encoding](value) for value in values])
    text = "".join(data.draw(st.lists(texts | pieces, max_size=6)))
    once = redact(text)
    assert redact(once) == once


class Counted(str):
    """A text that counts the characters that are copied out of it and of its copies."""

    __slots__ = ()
    copied = 0

    def __getitem__(self, key: Any) -> Counted:
        return self._counted(super().__getitem__(key))

    def __add__(self, other: str) -> Counted:
        return self._counted(super().__add__(other))

    def replace(self, *args: Any) -> Counted:
        return self._counted(super().replace(*args))

    @staticmethod
    def _counted(text: str) -> Counted:
        Counted.copied += len(text)
        return Counted(text)


@pytest.mark.parametrize(
    ("beginning", "is_placed"),
    [('sk-proj-"', True), ("sk-proj-a…", True), ("sk-proj-a&#47;b'", False)],
)
def test_a_text_of_beginnings_is_not_copied_for_each(beginning: str, is_placed: bool) -> None:
    redact = Redactor(["sk-proj-a/bcdefghijklmnopqrst"])
    copied = []
    for times in (500, 1000):
        before = Counted.copied
        redacted = redact(Counted(beginning * times))
        copied.append(Counted.copied - before)
        assert redacted.count("[redacted]") == (times if is_placed else 1)
    assert copied[1] < 3 * copied[0]


@examples(40)
@given(
    secret=ascii_secrets.filter(lambda s: not s.isdecimal()),
    encoding=st.sampled_from(sorted(ENCODINGS)),
)
def test_nothing_of_a_secret_reaches_the_file(secret: str, encoding: str) -> None:
    """At the store's door, in every place a string can stand."""
    assume(not any(secret in known for known in ("[redacted]", "planted.event", "text", "deep")))
    # A backslash is read together with what follows it.
    assume(encoding in PLACED or "\\" not in secret)
    encoded = ENCODINGS[encoding](secret)
    event = NewEvent(
        "planted.event",
        {
            "value": f"<{encoded}>",
            f"name {encoded}": 1,
            "text": Text(f"{encoded}!"),
            "deep": [{"list": [encoded, Text(json.dumps({"error": encoded}))]}],
        },
    )
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "log.db"
        with EventLog.open(path):
            pass
        # No secret is a word of the file itself, such as those of its tables.
        assume(secret.encode() not in path.read_bytes())
        assume(encoded.encode() not in path.read_bytes())
        with EventLog.open(path, redact=Redactor([secret])) as log:
            log.submit(Append("s", [event])).result()
            (stored,) = log.read()
            bodies = [log.text(ref) for ref in _refs(stored.data)]
            strings = [*_strings(stored.data), *filter(None, bodies)]
            assert len(strings) == 13
            assert not any(secret in text or encoded in text for text in strings)
            files = b"".join(f.read_bytes() for f in Path(folder).iterdir() if f.is_file())
        if len(secret) > 12:
            assert encoded.encode() not in files
            assert secret.encode() not in files


@pytest.mark.parametrize("encode", ENCODINGS.values(), ids=ENCODINGS)
def test_no_beginning_of_a_secret_is_stored_of_a_text_that_was_cut(
    encode: Callable[[str], str], tmp_path: Path
) -> None:
    """All that an event holds is looked at together, and each text in it ends somewhere."""
    secret = 'sk-proj /"0123456789abcdef'
    cut = encode(secret)[: len(encode(secret[:14]))]
    with EventLog.open(tmp_path / "log.db", redact=Redactor([secret])) as log:
        data = {"cut": Text(f"key {cut}"), "next": Text("behind it")}
        log.append("s", [NewEvent("planted.event", data)])
        (stored,) = log.read()
        body, behind = (log.text(stored.data[name]["$ref"]) for name in ("cut", "next"))
    assert body is not None
    assert "[redacted]" in body
    assert cut[:MIN_LENGTH] not in body
    assert behind == "behind it"


def test_a_word_of_the_program_stays_as_a_name_and_a_whole_string_but_not_in_a_text(
    tmp_path: Path,
) -> None:
    with EventLog.open(
        tmp_path / "log.db", redact=Redactor(["messages"]), keep=["messages"]
    ) as log:
        data = {"messages": "messages", "of": ["messages sent"], "said": Text("messages")}
        log.append("s", [NewEvent("sent", data)])
        (stored,) = log.read()
        assert log.text(stored.data["said"]["$ref"]) == "[redacted]"
    assert stored.data["messages"] == "messages"
    assert stored.data["of"] == ["[redacted] sent"]


@examples(30)
@given(
    secret=ascii_secrets.filter(lambda s: not s.isdecimal()),
    shapes=st.lists(
        st.tuples(st.sampled_from([None, *sorted(ENCODINGS)]), texts, texts, st.booleans()),
        min_size=2,
        max_size=6,
    ),
)
def test_events_that_are_submitted_together_are_redacted_as_each_alone(
    secret: str, shapes: list[tuple[str | None, str, str, bool]]
) -> None:
    def made() -> list[NewEvent]:
        events = []
        for encoding, before, after, as_text in shapes:
            written = before + ("" if encoding is None else ENCODINGS[encoding](secret)) + after
            events.append(NewEvent("t", {"text": Text(written) if as_text else written}))
        return events

    redactor = Redactor([secret])
    together = [event.data for event in redacted(made(), redactor)]
    assert together == [event.data for one in made() for event in redacted([one], redactor)]


@pytest.mark.parametrize(
    "written",
    [
        json.dumps([{"delta": piece} for piece in ("sk-pr", "oj-01", "23456", "789abc")]),
        "\n".join(f"data: {piece}" for piece in ("sk-pr", "oj-01", "23456", "789abc")),
        " ".join(f"data: {piece}" for piece in ("sk-pr", "oj-01", "23456", "789abc")),
        f"bytes {list(b'sk-proj-0123456789abc')}",
    ],
    ids=["strings of JSON", "events of a stream", "events on one line", "bytes"],
)
def test_a_string_of_an_event_that_spells_a_secret_is_withheld(written: str) -> None:
    redactor = Redactor(["sk-proj-0123456789abc"])
    quiet, told = NewEvent("t", {"name": "look"}), NewEvent("t", {"warnings": [written]})
    assert redactor(written) == REDACTED
    stored = redacted([quiet, told, quiet], redactor)
    assert [event.data for event in stored] == [
        {"name": "look"}, {"warnings": [REDACTED]}, {"name": "look"}
    ]  # fmt: skip


def test_a_secret_that_utf8_cannot_say_is_found_as_it_is_stored(tmp_path: Path) -> None:
    """Python makes such values of variables whose bytes are not UTF-8."""
    secret = "sk-pass\udcffword-12345678"
    with EventLog.open(tmp_path / "log.db", redact=Redactor([secret])) as log:
        log.append("s", [NewEvent("t", {"in": f"a {secret}", "text": Text(f"b {secret}")})])
        (event,) = log.read()
        assert event.data["in"] == "a [redacted]"
        assert log.text(event.data["text"]["$ref"]) == "b [redacted]"


def _strings(value: Any) -> list[str]:
    match value:
        case str():
            return [value]
        case list():
            return [text for item in value for text in _strings(item)]
        case dict():
            return [*value, *(text for item in value.values() for text in _strings(item))]
        case _:
            return []


def _refs(value: Any) -> list[str]:
    match value:
        case {"$ref": str(ref)}:
            return [ref]
        case list():
            return [ref for item in value for ref in _refs(item)]
        case dict():
            return [ref for item in value.values() for ref in _refs(item)]
        case _:
            return []


@pytest.mark.parametrize("written", ["x[0,]", "[1, 2,]", "[1 ,", "[7,8,x]", "[1,,2]", "[300]"])
def test_what_is_no_array_of_bytes_stays(written: str) -> None:
    text = f"Take {written} of it."
    assert Redactor(["sk-1234567890"])(text) == text
