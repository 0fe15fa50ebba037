"""The check of one entry of `toolCalls`, against its description in the docs, word by word."""

from __future__ import annotations

from typing import Any

from evaluated import demand, evaluated
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.outcome import Outcome
from kindlm.transcript import Step, ToolCall, ToolUse, Transcript, Turn

Calls = list[tuple[str, dict[str, Any], Any]]

names = st.sampled_from(["look", "pay"])
# Values that look alike. 1 and 1.0 are equal, and true is no number.
scalars = st.sampled_from([None, True, 1, 1.0, "1"])
values = scalars | st.lists(scalars, max_size=2) | st.dictionaries(st.sampled_from("kl"), scalars)
arguments = st.dictionaries(st.sampled_from("kl"), values, max_size=2)
made_calls = st.lists(st.tuples(names, arguments, st.sampled_from(["paid", None])), max_size=5)
counts = st.fixed_dictionaries(
    {}, optional={"min": st.integers(0, 2), "max": st.integers(0, 3)}
).filter(lambda count: count.get("min", 0) <= count.get("max", 3))
further = {
    "argsExact": st.just(True),
    "shouldNotCall": st.just(True),
    "order": st.integers(0, 3),
    "responseContains": st.just("paid"),
    "before": names,
    "after": names,
    "count": counts,
}


@st.composite
def entries_and_calls(draw: st.DrawFn) -> tuple[dict[str, Any], Calls]:
    """Return an entry with a few keys, often with the arguments of one of the calls, and calls."""
    calls = draw(made_calls)
    entry: dict[str, Any] = {"tool": draw(names)}
    if draw(st.booleans()):
        entry["argsMatch"] = draw(st.sampled_from([args for _, args, _ in calls] or [{}]))
    for key in draw(st.lists(st.sampled_from([*further]), max_size=3, unique=True)):
        entry[key] = draw(further[key])
    return entry, calls


@examples(1_000)
@given(entries_and_calls().filter(lambda case: case[0].get("before") != case[0]["tool"]))
def test_an_entry_means_what_the_docs_say(case: tuple[dict[str, Any], Calls]) -> None:
    entry, calls = case
    uses = tuple(ToolUse(ToolCall("", name, args), result) for name, args, result in calls)
    transcript = Transcript(turns=(Turn("", (Step("", uses),)),))
    kind = "tool_not_called" if entry.get("shouldNotCall") else "tool_called"

    result = evaluated(demand(kind, "x", entry), transcript)

    assert (result.outcome is Outcome.PASSED) == holds(entry, calls)


def holds(entry: dict[str, Any], calls: Calls) -> bool:
    counted, timely = 0, False
    for place, (name, args, result) in enumerate(calls):
        if name != entry["tool"] or not has_arguments(entry, args):
            continue
        if entry.get("shouldNotCall"):
            return False
        if "responseContains" in entry and entry["responseContains"] not in str(result):
            continue
        counted += 1
        earlier = [tool for tool, _, _ in calls[:place]]
        timely |= (
            entry.get("order", place) == place
            and entry.get("before") not in earlier
            and ("after" not in entry or entry["after"] in earlier)
        )
    if entry.get("shouldNotCall"):
        return True
    count = entry.get("count", {})
    least = count.get("min", 0 if count.get("max") == 0 else 1)
    return least <= counted <= count.get("max", counted) and (timely or counted == 0)


def has_arguments(entry: dict[str, Any], args: dict[str, Any]) -> bool:
    exact = entry.get("argsExact", False)
    if "argsMatch" not in entry:
        return not exact or args == {}
    return agree(entry["argsMatch"], args, exact)


def agree(wanted: Any, got: Any, exact: bool) -> bool:
    if isinstance(wanted, bool) or isinstance(got, bool) or wanted is None or got is None:
        return wanted is got
    if isinstance(wanted, dict) and isinstance(got, dict):
        keys_fit = wanted.keys() == got.keys() if exact else wanted.keys() <= got.keys()
        return keys_fit and all(agree(each, got[key], exact) for key, each in wanted.items())
    if isinstance(wanted, list) and isinstance(got, list):
        pairs = list(zip(wanted, got, strict=False))
        return len(wanted) == len(got) == len(pairs) and all(agree(*pair, exact) for pair in pairs)
    return bool(wanted == got)
