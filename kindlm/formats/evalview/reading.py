"""A file of EvalView test cases as documents, one for each case.

A YAML file holds one case, a list of them, or several documents; a TOML file holds one.
"""

from __future__ import annotations

from pathlib import Path

from kindlm.config.document import Document, read_documents
from kindlm.formats.evalview.toml_document import read_toml

TOML_SUFFIX = ".toml"


def read_file(path: Path, data: bytes) -> Document:
    """Return the list of all documents of a file. Never raises: see its problems."""
    return (
        read_toml(data) if path.suffix.lower() == TOML_SUFFIX else read_documents(data, merges=True)
    )


def cases_of(documents: Document) -> list[Document]:
    """Return the cases: each document that is none of a list, each item of those that are."""
    found: list[Document] = []
    for index, value in enumerate(documents.value or ()):
        document = documents.part(index)
        if isinstance(value, list):
            found += [document.part(item) for item in range(len(value))]
        elif value is not None:
            # Nothing is between two lines of `---`.
            found.append(document)
    return found
