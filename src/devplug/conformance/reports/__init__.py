"""How verdicts are told: to people, to programs, and as a page on what the checks mean."""
