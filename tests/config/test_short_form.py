"""Short forms of kindlm.yaml: the same suite as their long twins."""

from __future__ import annotations

import copy
import json
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import jsonschema
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kindlm.config import json_schema, load_suite
from kindlm.config.yaml_document import read_document

Place = tuple[str | int, ...]

OF_USERS = {"argsMatch", "arguments", "body", "defaultResponse", "headers", "parameters"}
OF_USERS |= {"setState", "then", "vars", "when", "whenState"}
"""Keys with values of any form: a list of one is what it is there."""


def alone(value: Any, path: Place = ()) -> Iterator[Place]:
    """Yield the places of lists of one entry and of mappings with one key, the inner ones first."""
    parts: Any = value.items() if isinstance(value, dict) else enumerate(value)
    for key, part in parts:
        if isinstance(part, (dict, list)) and key not in OF_USERS:
            yield from alone(part, (*path, key))
    if len(value) == 1:
        yield path


def shorter(config: Any, places: Iterator[Place] | list[Place]) -> Any:
    """Return a configuration with what is in some lists and mappings in place of these."""
    config = copy.deepcopy(config)
    for path in places:
        above = config
        for part in path[:-1]:
            above = above[part]
        inside = above[path[-1]]
        above[path[-1]] = next(iter(inside.values() if isinstance(inside, dict) else inside))
    return config


@cache
def _shortenings(text: str) -> tuple[Any, list[Place]]:
    """Return a configuration, and the places where the published schema takes what is inside."""
    schema = jsonschema.Draft202012Validator(json_schema())
    config = read_document(text.encode()).value
    places = [path for path in alone(config) if path[-1] != "ready"]  # a text there is a URL
    return config, [path for path in places if schema.is_valid(shorter(config, [path]))]


@settings(suppress_health_check=[HealthCheck.function_scoped_fixture], max_examples=20)
@given(data=st.data())
def test_a_value_alone_is_a_list_of_one_or_the_main_key(
    data: st.DataObject, complete: str, tmp_path: Path
) -> None:
    config, places = _shortenings(complete)
    assert len(places) > 15
    chosen = data.draw(st.lists(st.sampled_from(places), unique=True).map(set))
    path = tmp_path / "kindlm.yaml"

    def loaded(written: Any) -> Any:
        path.write_text(json.dumps(written), encoding="utf-8")
        suite = load_suite(path, root=tmp_path).suite
        assert suite, written
        return suite.config_text

    short = shorter(config, [place for place in places if place in chosen])
    assert loaded(short) == loaded(config)
