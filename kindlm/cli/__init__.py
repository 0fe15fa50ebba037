"""The command line: with the pytest plugin, the only room that prints or ends the process."""
