"""What the difference between two runs is worth: noise, a suspicion, or a confirmed regression."""
