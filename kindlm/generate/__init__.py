"""Writes tests for an agent, from what is known of it.

`generation_script` is the whole way, and the engine runs it. It asks the agent a few harmless
questions. A model says what the agent is for and plans scenarios (`questions`, `test_plan`).
Each scenario is put into a template of kindlm. Text of models and agents is only ever data: they
write no code.

Tests from recorded conversations need no model: `recordings` reads them, `stand_ins` replaces
personal data, `recorded_suite` makes a suite, and `suite_text` writes it as YAML. `suites` reads
suites of other programs, `corpora` attacks in other packages; `imported_tests` collects their
tests.
"""
