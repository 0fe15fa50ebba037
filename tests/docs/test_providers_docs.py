"""The page on providers is true: each example passes against the stand-in server."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from checked_server import LoopbackServer

from kindlm.cli.app import run
from kindlm.config import load_suite
from kindlm.packages import all_own
from kindlm.plugins import Provider
from kindlm.providers import preset_providers

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "providers.md").read_text("utf-8")
EXAMPLES = dict(re.findall(r"<!-- provider: ([\w-]+) -->\n```yaml\n(.*?)```", PAGE, re.DOTALL))
EXAMPLES |= {
    name: re.sub(r"(?<=model: ).*", model, EXAMPLES["groq"], count=1)
    for model, name in re.findall(r"^\| `(([\w-]+)/.*?)` \|", PAGE, re.MULTILINE)
}
KEY = "key-of-the-stand-in-server"
SCRIPT = {"keys": [KEY], "rules": [{"reply": {"text": "Hello!"}}]}
"""What the stand-in server says; it refuses requests without this key."""


def there(example: str, name: str, url: str) -> dict[str, Any]:
    """Return an example whose provider is the stand-in server."""
    suite: dict[str, Any] = yaml.safe_load(example)
    settings = suite.setdefault("providers", {}).setdefault(name, {})
    path = "" if name.startswith("anthropic") else "/v1"
    settings |= {"baseUrl": f"{url}{path}", "apiKeyEnv": "KEY_OF_THE_TEST"}
    return suite


def test_each_preset_has_an_example_of_six_lines():
    presets = [name for name, kind in all_own(Provider).items() if kind.usual_base_url is not None]
    platforms = ["anthropic-bedrock", "anthropic-foundry", "anthropic-vertex", "pydantic-ai"]
    assert {*presets, *platforms} <= EXAMPLES.keys()
    assert all(len(EXAMPLES[name].splitlines()) <= 6 for name in (*presets, *platforms))


ALIKE = {
    name
    for name, kind in all_own(Provider).items()
    if kind.__module__ == preset_providers.__name__ and name != "groq"
} | {"anthropic-bedrock", "anthropic-vertex"}
"""The presets that differ from `groq` in their address and key alone.

And the platforms whose addresses the stand-in server does not have: see `tests/providers`.
"""


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() & ALIKE))
def test_an_example_is_a_suite(name, tmp_path):
    path = tmp_path / "kindlm.yaml"
    path.write_text(EXAMPLES[name], "utf-8")
    loaded = load_suite(path)
    assert loaded.diagnostics == ()
    (model,) = loaded.suite.models.values()
    assert loaded.suite.providers[model.provider].type == name


@pytest.mark.parametrize("name", sorted(EXAMPLES.keys() - ALIKE))
def test_an_example_passes(name, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("KEY_OF_THE_TEST", KEY)
    with LoopbackServer(SCRIPT) as server:
        suite = there(EXAMPLES[name], name, server.url)
        Path("kindlm.yaml").write_text(yaml.safe_dump(suite), "utf-8")
        assert run(["test", "--quiet"]) == 0
        (request,) = server.requests
    _, _, model = suite["model"].partition("/")
    assert request.model == model.removeprefix("moonshotai:")
