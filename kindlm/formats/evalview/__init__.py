"""EvalView test cases: from the files of a folder to a `Suite`, or to diagnostics with lines."""

from kindlm.formats.evalview.config_file import EvalviewConfigs, LoadedConfig, project_folder
from kindlm.formats.evalview.load import Surroundings, load_folder

__all__ = ["EvalviewConfigs", "LoadedConfig", "Surroundings", "load_folder", "project_folder"]
