"""File formats beside kindlm.yaml, and finding out which format a file is in."""
