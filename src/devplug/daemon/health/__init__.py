"""Health rules: what a reading means, and who takes it when."""
