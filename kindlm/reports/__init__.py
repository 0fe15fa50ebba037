"""Reports of recorded runs, for people and for programs: one module for each."""
