"""Choose the queue of a message: round-robin, or by its message group.

The queue of a group is a jump consistent hash of its code, as in RocketMQ.  The same group and the
same count of queues give the same queue, in every process and version.  With one queue more, of n +
1, one group in n + 1 moves, all of them to the new queue; no other group changes its queue.

J. Lamping, E. Veach: A Fast, Minimal Memory, Consistent Hash Algorithm (2014).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from horolog.broker.topics import Topic
from horolog.protocol.rocketmq.message_group import NO_GROUP

_FACTOR = np.uint64(2_862_933_555_777_941_757)
_ONE, _SHIFT = np.uint64(1), np.uint64(33)
_SCALE = float(1 << 31)


def queues_of_groups(
    codes: npt.NDArray[Any], queue_counts: npt.NDArray[np.int64]
) -> npt.NDArray[np.int64]:
    """Map u32 codes of message groups (`group_code`) to queues below each count.

    A few rounds serve all codes together.
    """
    assert bool((queue_counts > 0).all()), "topics without a queue"
    state = codes.astype(np.uint32).view(np.int32).astype(np.int64).view(np.uint64)
    found = np.zeros(len(codes), np.int64)
    jumping = np.arange(len(codes))
    while len(jumping):
        state = state * _FACTOR + _ONE
        drawn = ((state >> _SHIFT).astype(np.float64) + 1) / _SCALE
        following = ((found[jumping] + 1) / drawn).astype(np.int64)
        goes_on = following < queue_counts[jumping]
        jumping, state = jumping[goes_on], state[goes_on]
        found[jumping] = following[goes_on]
    return found


def draw_queues(topics: Sequence[Topic], codes: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    """Choose a queue for each message: by its message group's code, or round-robin."""
    queues = np.array([topic.draw() for topic in topics], np.int64)
    in_group = codes != NO_GROUP
    if bool(in_group.any()):
        counts = np.array([topic.write_queues for topic in topics], np.int64)
        queues[in_group] = queues_of_groups(codes[in_group], counts[in_group])
    return queues


def choose_queues(
    named: npt.NDArray[np.int64],
    codes: npt.NDArray[Any],
    draws: npt.NDArray[np.int64],
    queue_counts: npt.NDArray[np.int64],
) -> npt.NDArray[np.int64]:
    """Return the queue that each message names, or else choose one as `draw_queues` does.

    named  queue of each message; below 0: it names none
    draws  queue drawn for the first message of its request, less the place of that message
    """
    is_free = named < 0
    queues = np.where(is_free, (draws + np.arange(len(named))) % queue_counts, named)
    in_group = is_free & (codes != NO_GROUP)
    if bool(in_group.any()):
        queues[in_group] = queues_of_groups(codes[in_group], queue_counts[in_group])
    return queues
