"""Scenarios: tests of conversations with an agent, as Python functions or in YAML.

- `api`, `trial`, `checks`, `verdicts`, `under_test` and `users` are the API of tests; `kindlm`
  exports their public names. `function_thread` serves functions that are not `async`.
- `function_script` runs such a test for the engine.
- `scenario_suite` turns a file into a suite: `yaml_form` reads YAML, `finding` and `marks` read
  Python, and `configuration` reads kindlm.toml. Under pytest, pytest itself collects Python files,
  and `scenario_suite` does the rest.
- `packs` finds packs in installed packages; its subpackages are kindlm's own packs.
"""
