"""The commands `devplug sandbox ...`: arguments, what they do, and what they print."""
