"""One history for a team: a server that takes runs in and hands them out, and its clients."""
