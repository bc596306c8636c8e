"""The daemon `devplug run`: plugins made of a configuration file instead of code."""
