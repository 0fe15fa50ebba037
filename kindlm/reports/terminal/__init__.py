"""Text for a terminal: an execution, agreement with judges, and parts of the run's report."""
