"""Recognises the format of a file; file formats other than kindlm.yaml."""
