"""What a recorded run looks like to people and to machines: one module for each report."""
