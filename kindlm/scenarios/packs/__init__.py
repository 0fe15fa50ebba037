"""Packs of scenarios that come with kindlm."""
