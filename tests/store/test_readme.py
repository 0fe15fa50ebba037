"""What the README says runs, as it stands there."""

from __future__ import annotations

import gc
import re
from pathlib import Path
from typing import Any

import pytest

README = Path(__file__).parents[2] / "store" / "README.md"


@pytest.mark.filterwarnings("ignore:unclosed database:ResourceWarning")
def test_the_examples_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    blocks = re.findall(r"```python\n(.*?)```", README.read_text(encoding="utf-8"), re.DOTALL)
    assert len(blocks) == 6
    names: dict[str, Any] = {}
    exec("\n".join(blocks), names)
    names.clear()
    gc.collect()
