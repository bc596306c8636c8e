"""Bytes between a real kubelet and its peers (tests/wire/recorded), as the calls that they were."""

from __future__ import annotations

import gzip
import json
from dataclasses import dataclass, field
from pathlib import Path
from urllib.parse import unquote

import hpack

from tests.wire.http2.made import DATA, HEADERS, PREFACE, Seen, frames_in

FOLDER = Path(__file__).parent / "recorded"
NAMES = sorted(file.name.partition(".")[0] for file in FOLDER.glob("*.gz"))


@dataclass
class Recorded:
    """One call: what was asked, what was answered, how it ended."""

    path: str
    requests: list[bytes]
    answers: list[bytes]
    status: str = ""
    text: str = ""


@dataclass
class Conversation:
    """All of one connection, either side as it came out of the socket."""

    client: list[bytes] = field(default_factory=list)
    server: list[bytes] = field(default_factory=list)

    def calls(self) -> dict[int, Recorded]:
        """The calls by their streams."""
        asked = streams(b"".join(self.client).removeprefix(PREFACE))
        told = streams(b"".join(self.server))
        found = {}
        for stream_id, (fields, content) in asked.items():
            answer_fields, answer = told.get(stream_id, ({}, b""))
            found[stream_id] = Recorded(
                fields[":path"],
                messages(content),
                messages(answer),
                answer_fields.get("grpc-status", ""),
                unquote(answer_fields.get("grpc-message", "")),
            )
        return found


def conversations(name: str) -> list[Conversation]:
    found: dict[int, Conversation] = {}
    with gzip.open(FOLDER / f"{name}.jsonl.gz", "rt") as lines:
        for line in lines:
            chunk = json.loads(line)
            one = found.setdefault(chunk["conn"], Conversation())
            if "hex" in chunk:
                side = one.client if chunk["from"] == "client" else one.server
                side.append(bytes.fromhex(chunk["hex"]))
    return list(found.values())


def streams(content: bytes) -> dict[int, tuple[dict[str, str], bytes]]:
    """All fields and all content of each stream, of one side."""
    decoder = hpack.Decoder()
    found: dict[int, tuple[dict[str, str], bytes]] = {}
    for one in frames_in(content):
        fields, carried = found.get(one.stream_id, ({}, b""))
        if one.kind == HEADERS:
            fields = fields | {str(name): str(value) for name, value in decoder.decode(one.payload)}
        elif one.kind == DATA:
            carried += one.payload
        if one.stream_id:
            found[one.stream_id] = fields, carried
    return found


def messages(content: bytes) -> list[bytes]:
    found = []
    while content:
        assert content[0] == 0
        size = int.from_bytes(content[1:5], "big")
        found.append(content[5 : 5 + size])
        content = content[5 + size :]
    return found


def whole_frames(content: bytes) -> tuple[list[Seen], int]:
    """The frames that are all there, and how many bytes they are."""
    end = 0
    while len(content) - end >= 9:
        size = int.from_bytes(content[end : end + 3], "big")
        if len(content) < end + 9 + size:
            break
        end += 9 + size
    return frames_in(content[:end]), end


def heads(client: bytes) -> list[dict[str, str]]:
    """The header fields of each call that a client has made, in their order."""
    content = client.removeprefix(PREFACE)
    told = streams(content[: whole_frames(content)[1]])
    return [fields for fields, _ in told.values() if fields]
