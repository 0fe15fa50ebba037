"""The public names of the package."""

from __future__ import annotations

import subprocess
import sys

import kindlm_store


def test_all_names_are_sorted_and_there() -> None:
    # Constants come first, as ruff sorts them.
    ordered = sorted(kindlm_store.__all__, key=lambda name: (not name.isupper(), name))
    assert kindlm_store.__all__ == ordered
    assert all(hasattr(kindlm_store, name) for name in kindlm_store.__all__)


def test_the_package_needs_the_standard_library_alone() -> None:
    code = (
        "import sys, kindlm_store\n"
        "print({name.partition('.')[0] for name in sys.modules} - {*sys.stdlib_module_names}"
        " - before)"
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
