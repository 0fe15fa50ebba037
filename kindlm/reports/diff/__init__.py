"""The comparison of two runs as text: a module for each form, and what they share."""
