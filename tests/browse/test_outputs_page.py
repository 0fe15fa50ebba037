"""The page of the outputs of a run."""

from __future__ import annotations

import re
from typing import Any

from pages import HOSTILE, assert_harmless, text_of


def test_tests_are_rows_and_targets_are_columns(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    planned = [make.planned(n, t, repeat=2) for n in ("greets", "refunds") for t in ("gpt", "opus")]
    writer.suite(tests=[*planned, make.planned("alone", "opus")])
    for name in ("greets", "refunds"):
        for target in ("gpt", "opus"):
            for repeat in (1, 2):
                check = make.passed() if repeat == 1 else make.failed()
                writer.execution(
                    name,
                    target,
                    repeat=repeat,
                    output=f"{name} by {target} #{repeat}",
                    tools=(("lookup", {}, {}),) if name == "refunds" else (),
                    assertions=(check,),
                )
    writer.execution("alone", "opus", error=("PROVIDER_TIMEOUT", 201, "Too slow.", "Wait."))
    writer.finish()
    page = ask("outputs/aaaa2222").text
    text = text_of(page.partition("<main")[2])
    assert "Test gpt opus greets passed 1/2 passed greets by gpt #1 passed 1/2" in text
    assert "refunds by opus #1 called lookup alone not run errored Too slow." in text
    assert "#2" not in text
    (link, *_) = re.findall(
        r'aria-label="refunds on opus: passed"|href="([^"]*execution[^"]*)"', page
    )
    assert ask(link).status_code == 200
    assert 'href="/-/kindlm/kindlm/outputs/aaaa2222"' in ask("run/aaaa2222").text
    assert ask("outputs/other").status_code == 404


def test_many_are_paged(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("aaaa2222")
    names = [f"test {number:03}" for number in range(101)]
    writer.suite(tests=[make.planned(name) for name in names])
    for name in names:
        writer.execution(name, assertions=(make.passed(),))
    writer.finish()
    first, second, third = (ask(f"outputs/aaaa2222?page={page}").text for page in (1, 2, 3))
    rows = [re.findall(r'<th scope="row">(test \d+)', page) for page in (first, second, third)]
    assert rows == [names[:100], names[100:], []]
    assert 'rel="next" href="/-/kindlm/kindlm/outputs/aaaa2222?page=2"' in first
    assert 'rel="next"' not in second


def test_what_agents_wrote_is_bounded_masked_text(ask: Any, history: Any, make: Any) -> None:
    writer = history.run("bbbb3333")
    writer.suite(HOSTILE, tests=[make.planned(HOSTILE, HOSTILE), make.planned("leaks", "gpt")])
    tools = ((HOSTILE, {}, HOSTILE),)
    writer.execution(HOSTILE, HOSTILE, output=HOSTILE * 9_000, tools=tools)
    found = {"source": "output", "start": 9, "end": 24, "name": "email", "excerpt": "a**@***.com"}
    leak = make.failed(kind="pii", label="pii", code="PII_DETECTED", evidence=[found])
    writer.execution("leaks", "gpt", output="Write to ann@example.com.", assertions=(leak,))
    writer.finish()
    page = ask("outputs/bbbb3333").text
    assert "alert(1)" in page
    assert len(page) < 20_000
    assert "ann@example.com" not in page
    assert "Write to a" in page
    assert_harmless(page)
