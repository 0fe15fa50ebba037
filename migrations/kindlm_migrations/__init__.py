"""Schema changes of the event log."""
