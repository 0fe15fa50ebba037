"""Writing tests for an agent: from what is told of it to files with scenarios.

`script` is the whole way, as the engine runs it: the agent is asked a few harmless things
(`probing`), a model says what it is for (`profile`) and plans scenarios (`plan`), and each is put
into a template of ours (`python_form`, `yaml_form`), loaded as a test would be (`verifying`) and
written (`writing`). What models and agents said is data all along: they write no code.
"""
