"""Writing tests for an agent: from what is told of it to files with scenarios.

`script` is the whole way, as the engine runs it. It asks the agent a few harmless questions. A
model says what the agent is for (`profile`) and plans scenarios (`plan`), asked by `questions`.
Each scenario is put into a template of ours (`python_form`, `yaml_form`), loaded as a test would
be, and written (`rendering`). What models and agents said is data all along: they write no code.
"""
