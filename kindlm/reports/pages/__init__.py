"""HTML pages of the history, served by `kindlm browse` and written into report files."""
