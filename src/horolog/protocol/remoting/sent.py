"""Fast encoder of answers to sends: one message a frame, and a header in JSON.

The bytes are those of `Gathered.answers` and `encode_answer`, built without a dictionary per
answer; a test compares both.
"""

from __future__ import annotations

from binascii import b2a_base64

from horolog.protocol.remoting.frame import PREFIX, VERSION
from horolog.protocol.remoting.gathered import Gathered, Site
from horolog.protocol.remoting.send_reader import Alike
from horolog.protocol.rocketmq.recall_handle import URL_SAFE
from horolog.protocol.send_commands import Sent

# Values that all answers to a client share are formatted first; so the marks of others are doubled.
_STORED = (
    b'{"code":0,"flag":1,"language":"%%b","opaque":%%%%b,"serializeTypeCurrentRPC":"JSON","version":%d,'
    b'"extFields":{"msgId":"%%b%%%%016X","queueId":"%%%%d","queueOffset":"%%%%d","transactionId":"%%%%b",'
    b'"MSG_REGION":"DefaultRegion","TRACE_ON":"true"}}' % VERSION
)
_SCHEDULED = _STORED[:-2] + b',"recallHandle":"%%b"}}'


def ready_answers(gathered: Gathered, sent: Sent, site: Site) -> list[bytes] | None:
    """Encode the answers to all frames that want one; None if a frame needs the general encoder."""
    if sent.refused:
        return None
    host = site.store_host.hex().upper().encode()
    names = f"v1 {gathered.command.topic} {site.broker_name}".encode()
    handle = names.replace(b"%", b"%%") + b" %d %b %d"  # the names of retry topics have a "%"
    found: list[bytes] = []
    for asked, rows in gathered.taken:
        if isinstance(asked, Alike):
            frame, opaques = asked.sample, asked.columns.opaques
        else:
            frame, opaques = asked, [b"%d" % asked.opaque]
        if frame.is_one_way:
            continue
        chosen = slice(rows.start, rows.stop)
        ids = gathered.ids[chosen]
        if frame.serializer or len(rows) != len(opaques):
            return None
        if not b"".join(ids).isalnum() or not all(ids):
            return None
        sender = (frame.language.encode(), host)
        stored, scheduled = _STORED % sender, _SCHEDULED % sender
        for opaque, name, origin, queue_id, offset, due_ms in zip(
            opaques,
            ids,
            sent.origins[chosen],
            sent.queue_ids[chosen],
            sent.queue_offsets[chosen],
            sent.due_ms[chosen],
            strict=True,
        ):
            if offset < 0:
                text = handle % (due_ms + 1, name, origin)
                coded = b2a_base64(text, newline=False).translate(URL_SAFE)
                header = scheduled % (opaque, origin, queue_id, 0, name, coded)
            else:
                header = stored % (opaque, origin, queue_id, offset, name)
            found.append(PREFIX.pack(4 + len(header), len(header)) + header)
    return found
