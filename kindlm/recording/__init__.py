"""Recording a run: from what is asked for to events in the log, with everything it needs started.

Here the engine, the doers and the store are wired together. To record a run, the
command line or a plugin of a test framework, makes a `RunRequest` and calls `run_session`; nothing
here prints or ends the process.
"""
