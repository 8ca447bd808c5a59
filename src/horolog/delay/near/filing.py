"""Filing: build the entries of many messages at once, whatever hours they are due in.

The chain fields of an entry follow from a sort by second, which puts the chains of all hours one
after another.  So an hour is asked only for what it alone knows: how many entries it has, and the
newest entry of each second.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np

from horolog.delay.entry import ENTRY, entry_sums
from horolog.delay.entry_files import Filing, put_columns
from horolog.delay.near.hour import Hour, Touched, topic_counts
from horolog.delay.source import Rows
from horolog.delay.state import SECONDS


def file_in_hours(hours: Sequence[Hour], cuts: Sequence[int], filing: Filing) -> Iterator[Rows]:
    """File messages that are sorted by hour, then in log order; yield the rows in each hour.

    cuts  where the messages of each hour begin, and where the last ones end

    A disk failure is raised at the turn of its hour: that hour and later ones stay unchanged.
    """
    order, starts, stops, seconds = _chains_of(filing.due_ms)
    chains = starts.searchsorted(cuts).tolist()  # where the chains of each hour begin
    filed, newest = _heads_of(hours, chains, seconds)
    lengths, place = stops - starts, np.arange(len(order))
    ends = filing.size.cumsum()
    bytes_at = [0, *[int(ends[cut - 1]) for cut in cuts[1:]]]  # where the records of each begin
    sizes = [stop - first for first, stop in pairwise(cuts)]
    shifts = [hour.count - cut for hour, cut in zip(hours, cuts, strict=False)]
    moves = [hour.log_bytes - at for hour, at in zip(hours, bytes_at, strict=False)]
    index = (place + np.repeat(shifts, sizes))[order]  # the global ones, chain by chain
    entries = np.zeros(len(order), ENTRY)
    put_columns(entries, filing)
    entries["position"] = ends - filing.size + np.repeat(moves, sizes)
    entries["local"][order] = (filed - starts).repeat(lengths) + place
    previous = np.empty(len(order), np.int64)
    previous[1:] = index[:-1]
    previous[starts] = newest
    entries["previous"][order] = previous
    entries["sum"] = entry_sums(entries)
    more, last = lengths.astype(np.uint32), index[stops - 1]
    records = memoryview(filing.records)
    topics = topic_counts(filing.topic)
    for i, hour in enumerate(hours):
        rows, of_chains = slice(cuts[i], cuts[i + 1]), slice(chains[i], chains[i + 1])
        counts = {next(iter(topics)): sizes[i]} if len(topics) == 1 else None
        yield hour.append(
            entries[rows],
            records[bytes_at[i] : bytes_at[i + 1]],
            Touched(seconds[of_chains], more[of_chains], last[of_chains]),
            topic_counts(filing.topic[rows]) if counts is None else counts,
        )


def _chains_of(due_ms: Rows) -> tuple[Rows, Rows, Rows, Rows]:
    """Cut messages into new pieces of chains: those of each second, in log order.

    Returns the order of the messages by second; where each piece starts and stops in that order;
    and the second of each piece within its hour.
    """
    second = due_ms // 1000
    order = second.argsort(kind="stable")
    ordered = second[order]
    is_first = np.empty(len(due_ms), bool)
    is_first[0] = True
    np.not_equal(ordered[1:], ordered[:-1], out=is_first[1:])
    starts = is_first.nonzero()[0]
    stops = np.empty_like(starts)
    stops[:-1], stops[-1] = starts[1:], len(due_ms)
    return order, starts, stops, ordered[starts] % SECONDS


def _heads_of(hours: Sequence[Hour], cuts: Sequence[int], seconds: Rows) -> tuple[Rows, Rows]:
    """Return how many entries the second of each piece has already, and the newest of them."""
    filed, newest = np.empty((2, len(seconds)), np.int64)
    for hour, (first, stop) in zip(hours, pairwise(cuts), strict=True):
        heads = hour.heads[seconds[first:stop]]
        filed[first:stop], newest[first:stop] = heads["filed"], heads["newest"]
    return filed, newest
