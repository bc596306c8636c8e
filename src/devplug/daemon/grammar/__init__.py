"""What the configuration file may say, and what is wrong with one that says something else."""
