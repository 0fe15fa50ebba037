"""Whatever is in a file, loading it ends, and says what is wrong."""

from __future__ import annotations

import tempfile
from pathlib import Path

import yaml
from hypothesis import given
from hypothesis import strategies as st

from examples import examples
from kindlm.formats.discovery import looks_like_tests, recognised
from kindlm.formats.evalview import Surroundings, load_folder

KEYS = [
    *("name", "input", "query", "context", "turns", "expected", "tools", "tool_categories"),
    *("tool_sequence", "output", "contains", "regex_patterns", "json_schema", "metrics", "value"),
    *("tolerance", "hallucination", "check", "safety", "categories", "thresholds", "min_score"),
    *("max_cost", "weights", "tool_accuracy", "variance", "runs", "adapter", "endpoint", "model"),
    *("adapter_config", "timeout", "headers", "tags", "mocks", "tool_mocks", "tool", "returns"),
    *("checks", "difficulty", "judge", "provider", "retry", "pricing", "scoring", "extra"),
]

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers(-3, 101)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.sampled_from(["http", "${HOME}", "${NOPE}", "{{env.HOME}}", "a", "", "http://h/x", "(["])
    | st.text(max_size=5)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(KEYS) | st.text(max_size=3), inner, max_size=6)
    ),
    max_leaves=25,
)
CASES = st.fixed_dictionaries(
    {
        "name": st.just("x") | VALUES,
        "input": st.just({"query": "q"}) | VALUES,
        "expected": VALUES,
        "thresholds": st.just({"min_score": 5}) | VALUES,
    },
    optional={
        key: VALUES for key in KEYS if key not in {"name", "input", "expected", "thresholds"}
    },
)


def load(data: bytes, name: str) -> None:
    """Load a file as a case, and then as the configuration of the project, too."""
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / name).write_bytes(data)
        _load(root, root / name)
        (root / ".evalview").mkdir()
        (root / ".evalview" / f"config{Path(name).suffix}").write_bytes(data)
        _load(root, root / name)


def _load(root: Path, file: Path) -> None:
    environ = {"HOME": "/root"}
    for item in load_folder(root, [file], Surroundings(root, "shop", environ)):
        is_wrong = any(each.severity == "error" for each in item.diagnostics)
        assert is_wrong is (item.suite is None)


@given(st.binary(max_size=200), st.sampled_from(["a.yaml", "a.toml"]))
@examples(60)
def test_any_bytes_load_or_are_refused(data: bytes, name: str) -> None:
    load(data, name)
    text = data.decode("utf-8", errors="replace")
    recognised(text, Path(name).suffix, named=True)
    looks_like_tests(text, Path(name).suffix)


@given(CASES)
@examples(60)
def test_any_case_loads_or_is_refused(case: object) -> None:
    load(yaml.safe_dump(case, allow_unicode=True).encode("utf-8", errors="replace"), "a.yaml")


@given(st.text(alphabet="[]{}='\"#.\n\\ab1, ", max_size=60))
@examples(100)
def test_any_text_that_looks_like_toml_loads_or_is_refused(text: str) -> None:
    load(text.encode(), "a.toml")
