"""The index of frames where a block has frames of a former process and of this one."""

from __future__ import annotations

from horolog.limits import FRAME_INDEX_BLOCK
from horolog.log.frame import HEADER_BYTES, seal
from horolog.log.frame_index import FrameIndex

SEGMENT = 4 * FRAME_INDEX_BLOCK
LOG_ID = 7


def test_former_frames_are_found_in_a_block_that_was_asked_for_too_early() -> None:
    """The first frame reaches into the second block, where a former frame and one of this process begin."""
    content = bytearray()
    bases = []
    for length in (FRAME_INDEX_BLOCK, 100, 100):
        bases.append(len(content))
        body = bytes(length)
        content += seal(
            log_id=LOG_ID, shard=0, base=len(content), durable=0, append_ms=0, epoch=1, count=1,
            body=body,
        ) + body  # fmt: skip
    index = FrameIndex(
        SEGMENT,
        lambda at, length: bytes(content[at : at + length]),
        LOG_ID,
        lambda *_: None,
        lambda *gap: None,
    )
    index.add(bases[2], 0)
    end = len(content)
    assert index.find(HEADER_BYTES, end) == 0  # walked as far as the first frame reaches
    assert index.find(FRAME_INDEX_BLOCK + 1, end) == 0  # the second block, in the first frame
    assert index.find(bases[1] + HEADER_BYTES, end) == bases[1]
    assert index.find(bases[2] + HEADER_BYTES, end) == bases[2]
