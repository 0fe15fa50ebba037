"""The words of messages, where checks look for them."""

from kindlm.wording import bounded, count, excerpt, printable, sentence, shown

__all__ = ["bounded", "count", "excerpt", "printable", "sentence", "shown"]
