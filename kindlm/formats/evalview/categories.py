"""Categories of tools: any tool of a category satisfies it.

These are the ones that EvalView has built in; `tool_categories` of `.evalview/config.yaml` adds
others, or replaces them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

BUILT_IN: Mapping[str, tuple[str, ...]] = {
    "file_read": (
        "bash", "text_editor", "read_file", "read", "view", "cat", "view_file",
        "str_replace_editor",
    ),
    "file_write": (
        "bash", "text_editor", "write_file", "write", "edit_file", "create_file",
        "str_replace_editor",
    ),
    "file_list": (
        "bash", "list_directory", "list_dir", "ls", "find", "directory_tree", "analyze",
    ),
    "search": (
        "bash", "grep", "ripgrep", "rg", "search", "search_files", "code_search",
        "find_in_files", "analyze",
    ),
    "shell": ("bash", "shell", "terminal", "execute", "run_command", "exec", "developer"),
    "web": ("web_search", "browse", "fetch_url", "http_request", "curl", "wget"),
    "git": ("bash", "git", "git_commit", "git_push", "git_pull", "git_status", "github"),
    "python": (
        "bash", "python", "python_repl", "execute_python", "ipython", "jupyter",
    ),
}  # fmt: skip


def tools_of(category: str, own: Mapping[str, Sequence[str]] | None) -> list[str] | None:
    """Return the tools of a category, None if nobody has defined it."""
    tools = (own or {}).get(category, BUILT_IN.get(category))
    return None if tools is None else list(tools)
