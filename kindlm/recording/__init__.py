"""Records a run: from a request to events in the log.

This room connects the engine with providers, agents, checks and the store. The command line and the
pytest plugin make a `RunRequest` and call `run_session`. Nothing here prints or ends the process.
"""
