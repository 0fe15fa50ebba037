"""What is accepted, and yet does not do what somebody may expect of it."""

from kindlm.config.advice.warnings import warn

__all__ = ["warn"]
