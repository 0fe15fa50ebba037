"""Checks that only EvalView has; they are loaded with its front end."""
