"""Statistics on counts and scores, each with its formula and where it is from.

Pure functions without random numbers: the same input gives the same output, to the last bit.
"""
