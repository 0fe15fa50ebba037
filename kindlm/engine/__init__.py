"""Runs a plan: conversations, retries and checks, each recorded as it happens."""
