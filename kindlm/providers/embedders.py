"""Who turns texts into vectors: the target's own provider if it can, else another of the suite.

A provider that can embed is one module and one line here, as in the registry of clients. The
extra `kindlm[embeddings]` embeds on this machine, with a model in the format of model2vec from the
folder that KINDLM_EMBEDDING_MODEL names. Any other name is refused: nothing is ever downloaded.
"""

from __future__ import annotations

import asyncio
import functools
import math
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, TypeAlias

from kindlm.errors import Err, ErrorCode, KindlmError, Ok, Result
from kindlm.ports import Embedder, Embedding
from kindlm.providers.registry import check_settings
from kindlm.suite import ProviderSettings, Suite
from kindlm.transcript import Usage

LOCAL_MODEL_VARIABLE = "KINDLM_EMBEDDING_MODEL"
_INSTALL = "Install it: pip install 'kindlm[embeddings]'"


def local_embedder(folder: str) -> Result[Embedder]:
    """Load the model of a folder, once in a process."""
    path = Path(folder).expanduser().resolve()
    if not path.is_dir():
        return Err(
            _error(f"{LOCAL_MODEL_VARIABLE} names no folder: {folder}", "Write the path of a model")
        )
    try:
        return Ok(LocalEmbedder(path.name, _load(path)))
    except ImportError:
        return Err(_error("Local embeddings need the package model2vec", _INSTALL))
    except (OSError, ValueError, KeyError) as error:
        message = f"{LOCAL_MODEL_VARIABLE} names a folder without a model2vec model: {error}"
        return Err(_error(message, "Write the path of a model"))


class LocalEmbedder:
    """Implements `ports.Embedder`."""

    def __init__(self, model: str, loaded: Any) -> None:
        self._model = model
        self._loaded = loaded

    @property
    def provider(self) -> str:
        """Where it runs."""
        return "local"

    @property
    def model(self) -> str:
        """The name of the model's folder."""
        return self._model

    async def embed(self, texts: Sequence[str], timeout_s: float) -> Result[Embedding]:
        """Return the vectors of some texts; tokens cost nothing here and are not counted."""
        started = time.perf_counter()
        try:
            async with asyncio.timeout(timeout_s):
                rows = await asyncio.to_thread(self._encode, list(texts))
        except TimeoutError:
            message = f"The local embedding took longer than {timeout_s * 1000:.0f} ms"
            return Err(_error(message, "Raise defaults.timeoutMs", ErrorCode.PROVIDER_TIMEOUT))
        latency_ms = (time.perf_counter() - started) * 1000
        if not all(math.isfinite(number) for row in rows for number in row):
            message = f"The local model {self._model} gave a vector that is no direction"
            return Err(_error(message, None, ErrorCode.PROVIDER_API_ERROR))
        return Ok(Embedding(tuple(map(tuple, rows)), latency_ms, Usage(0, 0)))

    async def aclose(self) -> None:
        """Do nothing: the model stays loaded for the next run of this process."""

    def _encode(self, texts: list[str]) -> list[list[float]]:
        rows: list[list[float]] = self._loaded.encode(texts).tolist()
        return rows


@functools.cache
def _load(path: Path) -> Any:
    return import_module("model2vec").StaticModel.from_pretrained(path)


def _error(
    message: str, hint: str | None, code: ErrorCode = ErrorCode.PROVIDER_NOT_FOUND
) -> KindlmError:
    details = {"status": None, "retry_after": None, "retryable": False, "body": None}
    return KindlmError(code, message, hint, details=details)


Maker: TypeAlias = Callable[[ProviderSettings, str | None, Mapping[str, str]], Embedder]

_MAKERS = {
    "openai": "kindlm.providers.openai_client:openai_embedder",
    "ollama": "kindlm.providers.ollama_client:ollama_embedder",
}


def find_embedder(suite: Suite, target: str, *, environ: Mapping[str, str]) -> Result[Embedder]:
    """Return the embedder for a target; bind `environ` to get a `ports.EmbedderFactory`.

    The order: the target's own provider, the suite's other providers, the local model that
    KINDLM_EMBEDDING_MODEL names. One that lacks its key is passed over while there is another.
    Error: none of them can (PROVIDER_NOT_FOUND), or the first that could lacks its key.
    """
    first_error: KindlmError | None = None
    for settings in _candidates(suite, target):
        key = check_settings(settings, environ)
        if isinstance(key, Ok):
            module, _, name = _MAKERS[settings.type].partition(":")
            maker: Maker = getattr(import_module(module), name)
            return Ok(maker(settings, key.value, environ))
        first_error = first_error or key.error
    folder = environ.get(LOCAL_MODEL_VARIABLE, "").strip()
    if folder:
        return local_embedder(folder)
    return Err(first_error or _nobody())


def may_embed(suite: Suite, environ: Mapping[str, str]) -> bool:
    """Tell whether a suite names anybody who can embed texts, whatever keys there are."""
    local = environ.get(LOCAL_MODEL_VARIABLE, "").strip()
    return bool(local) or any(item.type in _MAKERS for item in suite.providers.values())


def _candidates(suite: Suite, target: str) -> Iterator[ProviderSettings]:
    """Return the providers that can embed, the target's own first."""
    model = suite.models.get(target)
    own = None if model is None else suite.providers.get(model.provider)
    if own is not None and own.type in _MAKERS:
        yield own
    for settings in suite.providers.values():
        if settings.type in _MAKERS and settings is not own:
            yield settings


def _nobody() -> KindlmError:
    return KindlmError(
        ErrorCode.PROVIDER_NOT_FOUND,
        "No provider of this suite can embed texts",
        "Add `openai` or `ollama` to `providers`, or name a local model in "
        f"{LOCAL_MODEL_VARIABLE} (pip install 'kindlm[embeddings]'); or use method: judge",
    )
