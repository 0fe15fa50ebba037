"""Full-text search over what was said: an index in a file of its own beside the history.

The index is no part of the history: it is made when it is wanted, brought up to date before it is
asked, made anew when it does not fit, and removed when texts are erased, so that none of their
words stays in any file.
"""
