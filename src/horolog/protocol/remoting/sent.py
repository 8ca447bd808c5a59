"""Answers to sends as bytes, for those that come by the ten thousand: one message a frame, and a header in JSON.

The same as `Gathered.answers` and `encode_answer` make, without a dictionary for each; a test holds them together.
"""

from __future__ import annotations

import struct
from binascii import b2a_base64

from horolog.protocol.remoting.frame import VERSION
from horolog.protocol.remoting.send import Gathered, Site
from horolog.protocol.send_commands import Sent

_PREFIX = struct.Struct(">II")
_URL_SAFE = bytes.maketrans(b"+/", b"-_")
_STORED = (
    b'{"code":0,"flag":1,"language":"%%b","opaque":%%d,"serializeTypeCurrentRPC":"JSON","version":%d,'
    b'"extFields":{"msgId":"%%b%%016X","queueId":"%%d","queueOffset":"%%d","transactionId":"%%b",'
    b'"MSG_REGION":"DefaultRegion","TRACE_ON":"true"}}' % VERSION
)
_SCHEDULED = _STORED[:-2] + b',"recallHandle":"%b"}}'


def ready_answers(gathered: Gathered, sent: Sent, site: Site) -> list[bytes] | None:
    """The answers to all frames that want one; None where some need more than this knows."""
    if sent.refused:
        return None
    host = site.store_host.hex().upper().encode()
    names = f"v1 {gathered.command.topic} {site.broker_name}".encode()
    handle = names.replace(b"%", b"%%") + b" %d %b %d"  # the names of retry topics have a "%"
    origins, queue_ids, offsets = sent.origins, sent.queue_ids, sent.queue_offsets
    found = []
    for frame, rows in gathered.requests:
        if frame.is_one_way:
            continue
        row = rows.start
        message_id = gathered.ids[row]
        if frame.serializer or len(rows) != 1 or not message_id.isalnum():
            return None
        offset, origin = offsets[row], origins[row]
        told = (frame.language.encode(), frame.opaque, host, origin, queue_ids[row])
        if offset < 0:
            text = handle % (sent.due_ms[row] + 1, message_id, origin)
            coded = b2a_base64(text, newline=False).translate(_URL_SAFE)
            header = _SCHEDULED % (*told, 0, message_id, coded)
        else:
            header = _STORED % (*told, offset, message_id)
        found.append(_PREFIX.pack(4 + len(header), len(header)) + header)
    return found
