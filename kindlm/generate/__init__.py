"""Writing tests for an agent: from what is known of it to files with scenarios.

`script` is the whole way, as the engine runs it. It asks the agent a few harmless questions. A
model says what the agent is for and plans scenarios (`questions`, `plan`). Each scenario is put
into a template of ours (`forms`), loaded as a test would be, and written (`rendering`). What models
and agents said is data all along: they write no code.

Tests from recorded conversations need no model: `recordings` reads them, `stand_ins` replaces
personal data, `recorded_suite` makes a suite, and `suite_text` writes it.
"""
