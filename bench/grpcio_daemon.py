"""Our daemon with its calls carried by grpcio at either end: `python -m bench.grpcio_daemon run …`.

It takes what `devplug` takes, and is what our own transport is measured beside.
"""

from __future__ import annotations

from devplug.cli import main
from devplug.wire.transport import GRPCIO, chosen

if __name__ == "__main__":
    with chosen(server=GRPCIO, client=GRPCIO):
        main()
