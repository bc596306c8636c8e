"""Another user of the machine, who tries to connect to every socket below a folder, again and again.

python intruder.py FOLDER: becomes nobody, says so, and goes on until its standard input is closed. Then it
prints as JSON how often it has tried, and to which files it got through. It knows nothing of devplug.
"""

from __future__ import annotations

import json
import os
import socket
import stat
import sys
import threading

NOBODY = 65534


def sockets(folder: str, depth: int = 3) -> list[str]:
    """All sockets below a folder, as far as this user can see them."""
    found: list[str] = []
    try:
        entries = list(os.scandir(folder))
    except OSError:
        return found
    for entry in entries:
        try:
            mode = entry.stat(follow_symlinks=False).st_mode
        except OSError:
            continue
        if stat.S_ISSOCK(mode):
            found.append(entry.path)
        elif stat.S_ISDIR(mode) and depth:
            found += sockets(entry.path, depth - 1)
    return found


def _wait_for_the_end(over: threading.Event) -> None:
    sys.stdin.read()
    over.set()


def main(folder: str) -> None:
    os.setgroups([])
    os.setgid(NOBODY)
    os.setuid(NOBODY)
    over = threading.Event()
    threading.Thread(target=_wait_for_the_end, args=(over,), daemon=True).start()
    sys.stdout.write("trying\n")
    sys.stdout.flush()
    tries, connected = 0, set()
    while not over.is_set():
        for path in sockets(folder):
            with socket.socket(socket.AF_UNIX) as one:
                one.settimeout(0)
                tries += 1
                try:
                    one.connect(path)
                except BlockingIOError:
                    connected.add(path)
                except OSError:
                    continue
                connected.add(path)
    sys.stdout.write(json.dumps({"tries": tries, "connected": sorted(connected)}))


if __name__ == "__main__":
    main(sys.argv[1])
