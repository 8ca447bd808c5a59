"""The life of one queue offset for one consumer group: a state table.

States:

    new        never given out, as far as the log knows
    leased     given out: no other consumer gets the message until the lease ends
    ended      the lease is over; the offset waits for the next receive, and its last handle can no
               longer ack
    consumed   for good

Events:

    grant      a receive gets the message; attempt 1 if the offset is new, else one more
    change     the holder changes the end of the lease and gets a new handle.  Also of a new offset:
               the record of the grant was lost with the process that made it, and the handle is the
               proof
    renew      the holder lives: the lease continues, with the same handle
    record     the log or the checkpoint has a grant; a start sees no ends of leases, so the offset
               may be leased already
    end        the time of the lease is over
    ack        the holder has consumed the message, or the log has an ack; of a new offset as for
               `change`
    skip       the message does not match the group's tag filter
    give up    leased as often as the group allows, or given up by the holder: the message is among
               the dead letters
    hole       the message cannot be read
    retain     retention has dropped the message
    commit     the group declares everything below some offset consumed, and this offset is below
    rewind     the group goes back to some offset, and this offset is not below: its progress is
               forgotten

An ack, a change or a renewal of an ended lease is refused before the table is asked
(`Ready.find_lease`).
"""

from __future__ import annotations

from horolog.state_table import Name


class State(Name):
    """The state of a queue offset."""

    NEW = "new"
    LEASED = "leased"
    ENDED = "ended"
    CONSUMED = "consumed"


class Event(Name):
    """An event in the life of a queue offset."""

    GRANT = "grant"
    CHANGE = "change"
    RENEW = "renew"
    RECORD = "record"
    END = "end"
    ACK = "ack"
    SKIP = "skip"
    GIVE_UP = "give up"
    HOLE = "hole"
    RETAIN = "retain"
    COMMIT = "commit"
    REWIND = "rewind"


TABLE: dict[tuple[State, Event], State] = {
    (State.NEW, Event.GRANT): State.LEASED,
    (State.NEW, Event.CHANGE): State.LEASED,
    (State.NEW, Event.RECORD): State.LEASED,
    (State.NEW, Event.ACK): State.CONSUMED,
    (State.NEW, Event.SKIP): State.CONSUMED,
    (State.NEW, Event.GIVE_UP): State.CONSUMED,
    (State.NEW, Event.HOLE): State.CONSUMED,
    (State.NEW, Event.RETAIN): State.CONSUMED,
    (State.LEASED, Event.CHANGE): State.LEASED,
    (State.LEASED, Event.RENEW): State.LEASED,
    (State.LEASED, Event.RECORD): State.LEASED,
    (State.LEASED, Event.END): State.ENDED,
    (State.LEASED, Event.ACK): State.CONSUMED,
    (State.LEASED, Event.GIVE_UP): State.CONSUMED,
    (State.LEASED, Event.RETAIN): State.CONSUMED,
    (State.ENDED, Event.GRANT): State.LEASED,
    (State.ENDED, Event.GIVE_UP): State.CONSUMED,
    (State.ENDED, Event.HOLE): State.CONSUMED,
    (State.ENDED, Event.RETAIN): State.CONSUMED,
    (State.CONSUMED, Event.ACK): State.CONSUMED,
    (State.CONSUMED, Event.SKIP): State.CONSUMED,
    (State.CONSUMED, Event.HOLE): State.CONSUMED,
    (State.CONSUMED, Event.RETAIN): State.CONSUMED,
    **{(state, Event.COMMIT): State.CONSUMED for state in State},
    **{(state, Event.REWIND): State.NEW for state in State},
}
