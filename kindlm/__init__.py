"""kindlm: behavioural regression testing for AI agents, and the recorder of everything they did."""

__version__ = "0.1.0"
