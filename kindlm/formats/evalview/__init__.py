"""EvalView test cases: from the files of a folder to a `Suite`, or to diagnostics with lines."""

from kindlm.formats.evalview.evalview_cases import Surroundings, load_folder, project_folder

__all__ = ["Surroundings", "load_folder", "project_folder"]
