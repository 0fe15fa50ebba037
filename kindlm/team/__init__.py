"""One history for a team: the server that takes and hands out runs, and its clients."""
