"""Packs: tests that come with an installed package, and are run as `pack:NAME`.

A package names them in its entry points of the group `kindlm.packs`: each is a package with
scenarios and suites of kindlm.yaml, or a module with scenarios.
"""

from __future__ import annotations

from collections.abc import Iterator
from importlib.metadata import EntryPoint
from importlib.util import find_spec
from pathlib import Path

from kindlm.dataclass import replace
from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result, misuse, not_there
from kindlm.formats.discovery import PACK_MARK, Discovery, Found, discover
from kindlm.packages import installed
from kindlm.suggestions import suggest
from kindlm.wording import shown

_GROUP = "kindlm.packs"


def discover_pack(pack: str) -> Result[Discovery]:
    """Return the files with scenarios of a pack, by the names that their suites have."""
    name, _, wanted = pack.removeprefix(PACK_MARK).partition("/")
    packs = installed(_GROUP)
    known = packs.get(name, ())
    if not known:
        near = suggest(name, packs)
        return Err(
            not_there(
                f"There is no pack {shown(name)}. Installed: {', '.join(packs) or 'none'}.",
                f'Did you mean "{near}"?' if near else "Install the package that it comes with.",
            )
        )
    if len(known) > 1:
        packages = ", ".join(sorted(each.package for each in known))
        message = f"Several packages have a pack {shown(name)}: {packages}."
        return Err(misuse(message, "Remove all of them but one."))
    (pack_of,) = known
    place = _place(pack_of.entry)
    if place is None:
        return Err(
            not_there(
                f"The pack {shown(name)} of {pack_of.package} is not installed: no module"
                f" {pack_of.entry.module}.",
                "Reinstall that package.",
            )
        )
    found = discover(place)
    if isinstance(found, Err):
        is_module = place.is_file() and found.error.code is ErrorCode.CONFIG_VALIDATION_ERROR
        return Err(_no_scenarios(pack, place)) if is_module else found
    files = [
        file
        for file in _files(f"{PACK_MARK}{name}", place, found.value)
        if not wanted or f"{file.suite}/".startswith(f"{pack}/")
    ]
    return Ok(Discovery(tuple(files))) if files else Err(_no_scenarios(pack, place))


def _files(prefix: str, place: Path, found: Discovery) -> Iterator[Found]:
    folder = place if place.is_dir() else place.parent
    for each in found.found:
        if each.front_end in ("scenario", "kindlm"):
            inside = each.path.relative_to(folder).as_posix()
            yield replace(each, suite=f"{prefix}/{inside}")


def _place(entry: EntryPoint) -> Path | None:
    """Return the folder or file of a pack; nothing of it is imported but the packages around it."""
    try:
        spec = find_spec(entry.module)
    except (ImportError, ValueError):
        return None
    if spec is None:
        return None
    if spec.submodule_search_locations:
        return Path(next(iter(spec.submodule_search_locations)))
    return None if spec.origin is None else Path(spec.origin)


def _no_scenarios(pack: str, place: Path) -> KindlmError:
    return not_there(
        f"There are no scenarios in {shown(pack)} ({place}).",
        "A pack has test_*.py or *_test.py with functions under @scenario, or YAML with `turns`.",
    )
