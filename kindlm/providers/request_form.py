"""Caches the headers that an SDK sends, so that later runs need not load the SDK.

Loading takes up to a second, and the headers are always the same. kindlm loads the SDK again after
an update of any package, or if the environment has settings for it beyond a key and a base URL.
The port does not matter, since services of a suite get another port in each run.
"""

from __future__ import annotations

import json
import os
import platform
import shutil
import sys
from collections.abc import Sequence
from functools import cache
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from multidict import CIMultiDict
from yarl import URL

from kindlm.dataclass import dataclass
from kindlm.plugins import Access

if TYPE_CHECKING:
    import httpx2


LENGTH = "content-length"
_HOST = "{host}"
_KEY = "{key}"
_OF_KEY = ("authorization", "x-api-key")
"""The headers that carry the key."""

_MIN_KEY_LENGTH = 8
"""A shorter key may be part of another header."""

_MAX_ENDPOINTS = 100
"""The oldest endpoints are deleted, since each update of a package adds new ones."""


@dataclass(frozen=True, slots=True)
class RequestForm:
    """The URL and headers of a request.

    `headers` have the SDK's order. `library` is the HTTP library below the SDK, which defines the
    trusted certificates.
    """

    url: URL
    headers: CIMultiDict[str]
    library: str


def form_of(requests: Sequence[httpx2.Request]) -> RequestForm | None:
    """Return the common form of requests; None if they differ, such as in a signature."""
    if not requests or any(_parts(request) != _parts(requests[0]) for request in requests):
        return None
    first = requests[0]
    if first.method != "POST" or first.url.userinfo or "sni_hostname" in first.extensions:
        return None
    library = type(first).__module__.partition(".")[0]
    # The same conversions as in the SDKs' aiohttp transport.
    return RequestForm(URL(str(first.url)), CIMultiDict(first.headers), library)


def _parts(request: httpx2.Request) -> tuple[object, ...]:
    headers = [(name, value) for name, value in request.headers.multi_items() if name != LENGTH]
    return request.method, request.url, headers


def form_cache(sdk: str, access: Access, base_url: str, path: str) -> FormCache | None:
    """Return the cache of the requests to a path; None if requests must not be cached.

    SDKs send fewer headers to a base URL that the configuration names.
    """
    key, prefix = access.key or "", sdk.upper() + "_"
    known = (prefix + "API_KEY", prefix + "BASE_URL")
    if any(name.startswith(prefix) and name not in known for name in os.environ):
        return None
    home = os.environ.get("HOME") or os.environ.get("USERPROFILE")
    caches = os.environ.get("XDG_CACHE_HOME") or (home and f"{home}/.cache")
    if not caches or not Path(caches).is_absolute() or 0 < len(key) < _MIN_KEY_LENGTH:
        return None
    if access.organization is not None:
        return None
    try:
        endpoint = str(URL(base_url).with_port(None))
        installed = _installed()
    except (OSError, ValueError):
        return None
    about = [sdk, endpoint, bool(key), access.base_url is not None, sys.version]
    about += [platform.platform(), installed]
    name = sha256(json.dumps(about).encode()).hexdigest()
    file = f"{path.strip('/').replace('/', '-')}.json"
    url = base_url.rstrip("/") + path
    return FormCache(Path(caches) / "kindlm" / "requests" / name / file, url, key)


def _installed() -> list[str]:
    """Return names and versions of installed packages, and the change times of kindlm's modules."""
    names = [
        name
        for folder in dict.fromkeys(sys.path)
        if os.path.isdir(folder)  # noqa: PTH112 - sys.path holds strings
        for name in _installed_in(folder, os.stat(folder).st_mtime_ns)  # noqa: PTH116
    ]
    ours = Path(__file__).parent.glob("*_provider*.py")
    return [*names, *(str(file.stat().st_mtime_ns) for file in sorted(ours))]


@cache
def _installed_in(folder: str, _changed_ns: int) -> list[str]:
    """Return the packages in a folder, which is read again after a change."""
    names = sorted(os.listdir(folder))  # noqa: PTH208
    return [name for name in names if name.endswith((".dist-info", ".egg-info"))]


@dataclass(frozen=True, slots=True)
class FormCache:
    """The form of an SDK's requests to one URL, from earlier runs.

    The file holds the headers, with placeholders for the host and the key. No URL is read from it:
    requests go to the address in the configuration.
    """

    file: Path
    url: str
    key: str

    def read(self) -> RequestForm | None:
        """Return the form; None if it is not in the cache."""
        try:
            kept = json.loads(self.file.read_bytes())
            return self._form(kept["library"], kept["headers"])
        except (OSError, ValueError, LookupError, TypeError, AttributeError):
            return None

    def write(self, form: RequestForm) -> None:
        """Store a form, unless key and URL cannot restore it."""
        headers = []
        for name, value in form.headers.items():
            kept = _HOST if name.lower() == "host" else value
            if self.key and name.lower() in _OF_KEY:
                kept = value.replace(self.key, _KEY)
            if self.key and self.key in kept:
                return
            headers.append((name, kept))
        if self._form(form.library, headers) != form:
            return
        beside = self.file.with_suffix(f".{os.getpid()}")
        try:
            self.file.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            beside.write_text(
                json.dumps({"library": form.library, "headers": headers}), encoding="utf-8"
            )
            beside.replace(self.file)
            forms = self.file.parent.parent.iterdir()
            for old in sorted(forms, key=lambda each: each.lstat().st_mtime_ns)[:-_MAX_ENDPOINTS]:
                shutil.rmtree(old, ignore_errors=True)
        except OSError:
            return  # the next run asks the SDK again

    def _form(self, library: str, headers: Sequence[tuple[str, str]]) -> RequestForm | None:
        if library not in ("httpx", "httpx2"):
            return None
        url = URL(self.url)
        host = url.host_port_subcomponent or ""
        whole = [
            (name, host if value == _HOST else value.replace(_KEY, self.key))
            for name, value in headers
        ]
        return RequestForm(url, CIMultiDict(whole), library)
