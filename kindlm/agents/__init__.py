"""Agents under test. An adapter is one module that makes a `ports.Agent`, and a registry line."""
