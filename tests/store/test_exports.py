"""What the package promises: its public names, and that its README runs as it stands."""

from __future__ import annotations

import gc
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import kindlm_store


def test_all_names_are_sorted_and_there() -> None:
    # Constants come first, as ruff sorts them.
    ordered = sorted(kindlm_store.__all__, key=lambda name: (not name.isupper(), name))
    assert kindlm_store.__all__ == ordered
    assert all(hasattr(kindlm_store, name) for name in kindlm_store.__all__)


def test_the_package_needs_the_standard_library_alone() -> None:
    code = (
        "import sys, kindlm_store\n"
        "print({name.partition('.')[0] for name in sys.modules if name[0] != '_'}"
        " - {*sys.stdlib_module_names} - before)"
    )
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            f"import sys\nbefore = {{n.partition('.')[0] for n in sys.modules}}\n{code}",
        ],
        capture_output=True,
        text=True,
        check=True,
    )
    found = set(done.stdout.strip().strip("{}").replace("'", "").split(", "))
    assert found == {"kindlm_store", "kindlm_migrations"}


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
