"""Writes tests for an agent.

`generation_script`, which the engine runs, asks the agent a few harmless questions. A model
describes the agent and plans scenarios (`questions`, `test_plan`), and templates of kindlm turn
these into files. Text of models and agents is data, never code.

Tests from recorded conversations need no model: `recordings` reads them, `stand_ins` replaces
personal data, `recorded_suite` makes a suite, and `suite_text` writes it as YAML. `suites` reads
suites of other programs, whose tests `imported_tests` collects. `corpora` reads attacks from
installed packages.
"""
