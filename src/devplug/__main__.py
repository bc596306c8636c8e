"""`python -m devplug`, the same as `devplug`."""

from devplug.cli import main

main()
