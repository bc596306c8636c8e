"""The guards of the wire: the socket's file, limits, and what of a failure crosses."""

from __future__ import annotations

from typing import Final

from torture.guards.guard import Guard

__all__ = ["GUARDS"]

_LISTENING: Final = "src/devplug/wire/listener.py"

GUARDS: Final = (
    Guard(
        "own-file-only",
        "I5",
        "closing removes the socket's file only if it is still ours",
        _LISTENING,
        "        if self.is_bound() and not keep_file:\n",
        "        if not keep_file:\n",
        "tests/wire/test_listener.py::test_closing_leaves_the_file_of_another_server",
    ),
    Guard(
        "calls-survive-binding",
        "I6",
        "calls and streams of a lost file go on when the socket is made again",
        _LISTENING,
        "            if not server.open_calls:\n",
        "            if True:\n",
        "tests/wire/test_listener.py::test_binding_again_and_tidying_up_keep_a_call_of_the_lost_file",
    ),
    Guard(
        "identity-of-sockets",
        "I2",
        "a socket made anew is another, also where its inode number comes back",
        "src/devplug/wire/socketfiles.py",
        "    return status.st_dev, status.st_ino, status.st_mtime_ns\n",
        "    return status.st_dev, 0, 0\n",
        "tests/wire/test_listener.py::test_the_identity_of_a_socket_changes_with_its_file",
    ),
    Guard(
        "private-sockets",
        "I11",
        "a socket can be reached by its owner and root alone",
        "src/devplug/wire/socketfiles.py",
        "        keep_private(path)\n",
        "        pass\n",
        "tests/security/test_sockets.py",
    ),
    Guard(
        "callers-are-known",
        "I11",
        "only root and our own user may call, by what the kernel says of them",
        "src/devplug/wire/server.py",
        "self._is_stopping or not may_call(uid, os.geteuid())",
        "self._is_stopping",
        "tests/wire/test_server.py",
    ),
    Guard(
        "header-memory",
        "I3",
        "header blocks that are remembered are forgotten in time",
        "src/devplug/wire/http2/headers.py",
        "            self._known.clear()\n",
        "            pass\n",
        "tests/wire/http2/test_tables.py",
    ),
    Guard(
        "streams-at-once",
        "I3",
        "a connection has no more streams than it was told",
        "src/devplug/wire/http2/streams.py",
        "        if len(self.open) >= self._limit:\n",
        "        if False:\n",
        "tests/wire/http2/test_connection.py",
    ),
    Guard(
        "floods-end",
        "I3",
        "pings, resets and settings without end close the connection",
        "src/devplug/wire/http2/flow_control.py",
        "        return self._strikes <= STRIKES_LIMIT\n",
        "        return True\n",
        "tests/wire/http2/test_rules.py",
    ),
    Guard(
        "latest-list-wins",
        "I8",
        "a reader that was slow gets the latest list and no backlog",
        "src/devplug/wire/server_connection.py",
        "                await call.room\n",
        "                await asyncio.sleep(0)\n",
        "tests/wire/test_server.py",
    ),
    Guard(
        "room-for-the-next",
        "I3",
        "a full server lets an idle connection go for a new one",
        "src/devplug/wire/server.py",
        "    return next(silent, None) or next(idle, None)\n",
        "    return next(silent, None)\n",
        "tests/wire/test_server.py::test_connections_without_a_call_make_room_for_others",
    ),
    Guard(
        "long-frames-end",
        "I3",
        "a frame that is longer than was allowed is not waited for",
        "src/devplug/wire/http2/frames.py",
        "        if size > LEAST_FRAME_LIMIT_BYTES:\n",
        "        if False:\n",
        "case wire-frames 100000",
    ),
    Guard(
        "priorities-are-passed-over",
        "I6",
        "a request with a priority is a request",
        "src/devplug/wire/http2/frames.py",
        "    if flags & _WITH_PRIORITY:\n",
        "    if False:\n",
        "case wire-same-bytes 60",
    ),
    Guard(
        "sizes-of-messages",
        "I11",
        "a length or a tag that no message can have is malformed",
        "src/devplug/wire/wireformat.py",
        "        if begin - start > 5 or size >> 31:\n",
        "        if False:\n",
        "tests/wire/test_protobuf.py",
    ),
    Guard(
        "sockets-of-others-are-kept",
        "I5",
        "our socket is told from another in its place",
        "src/devplug/wire/listener.py",
        "        return self._identity is not None and self._identity_at(self.path) == self._identity\n",
        "        return self._identity is not None and self._identity_at(self.path) is not None\n",
        "case sockets-replaced 20",
    ),
    Guard(
        "removed-sockets-are-seen",
        "I2",
        "our socket is made again when it was removed",
        "src/devplug/wire/listener.py",
        "        return self._identity is not None and self._identity_at(self.path) == self._identity\n",
        "        return self._identity is not None\n",
        "case sockets-deleted 20",
    ),
)
