"""Agents under test. An adapter is one module, `NAME_agent.py`, that makes a `ports.Agent`."""
