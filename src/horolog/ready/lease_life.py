"""The life of one queue offset for one consumer group.

    new        never given out, as far as the log knows
    leased     given out: nobody else gets it until the lease ends
    ended      the lease is over; the offset waits for the next receive, and its last handle acks no more
    consumed   for good

What happens to it:

    grant      a receive gets it; attempt 1 if it is new, else one more
    change     its holder gives it a new end and takes a new handle.  Of a new one too: the record of its grant was lost
               with the process that made it, and the handle is the proof
    renew      its holder lives: the lease goes on, with the same handle
    record     the log or the checkpoint says that it was given out; a start sees no ends, so it may be leased already
    end        the time of the lease is over
    ack        its holder has done with it, or the log says so; a new one as for `change`
    skip       a tag filter of its group does not want it
    give up    it was leased as often as its group allows, or its holder says so: it is among the dead letters
    hole       it cannot be read
    retain     retention has dropped it
    commit     its group says that everything below some offset is consumed, and it lies below
    rewind     its group goes back to some offset, and it does not lie below: whatever became of it is forgotten

An ack, a change or a renewal of what is ended is refused before it comes here (`Ready.check`).
"""

from __future__ import annotations

from horolog.state_table import Name


class State(Name):
    """Where an offset is."""

    NEW = "new"
    LEASED = "leased"
    ENDED = "ended"
    CONSUMED = "consumed"


class Event(Name):
    """What happens to it."""

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
