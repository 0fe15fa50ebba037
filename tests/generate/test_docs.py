"""The page about generation: its example is what is written."""

from __future__ import annotations

import json
import re
from pathlib import Path

from planned_shop import RECORDED

from kindlm.generate.test_plan import CATEGORIES, Order, read_plan
from kindlm.generate.test_writing import rendered

PAGE = (Path(__file__).parents[2] / "docs" / "how-to" / "generate.md").read_text("utf-8")


def test_the_example_is_what_is_written(tmp_path: Path) -> None:
    found = re.search(r"<!-- generated: as written -->\n```python\n(.*?)```\n", PAGE, re.DOTALL)
    assert found is not None
    plan = read_plan(json.dumps(RECORDED["plan"]), CATEGORIES, ["lookup_order", "issue_refund"])
    order = Order(1, tuple(CATEGORIES), "python", tmp_path, tmp_path)
    assert found[1] in [file.text for file in rendered(plan.scenarios, order)]


def test_all_categories_are_there() -> None:
    assert re.findall(r"^\| `([\w-]+)` \|", PAGE, re.MULTILINE) == list(CATEGORIES)
