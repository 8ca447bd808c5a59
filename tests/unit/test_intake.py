"""When an intake stops reading, from whom, and when it goes on: bounds of a link and of all links together."""

from __future__ import annotations

from typing import Any, cast

from horolog.limits import (
    BYTES_UNDER_WAY_MAX,
    LINK_BYTES_UNDER_WAY_MAX,
    LINK_REQUESTS_MAX,
)
from horolog.server.intake import Intake
from horolog.server.link import Link, Stopped
from horolog.server.shares import Share


class Peer:
    """What an intake needs of a link, and why nothing is read from it."""

    def __init__(self, address: str = "10.0.0.1") -> None:
        self.address = address
        self.share: Share | None = None
        self.under_way = self.requests = 0
        self.is_full = False
        self.stopped = Stopped(0)

    def stop_reading(self, why: Stopped) -> None:
        self.stopped |= why

    def resume_reading(self, why: Stopped) -> None:
        self.stopped &= ~why


def admitted(intake: Intake, address: str = "10.0.0.1") -> Any:
    peer: Any = Peer(address)
    assert intake.admit(peer) == ""
    return peer


def test_a_link_with_too_many_requests_waits_until_half_have_their_answers() -> None:
    intake = Intake()
    peer = admitted(intake)
    intake.add_under_way(peer, 0, LINK_REQUESTS_MAX)
    assert not peer.stopped
    intake.add_under_way(peer, 0, 1)
    assert peer.stopped == Stopped.BY_LINK
    intake.remove_under_way(peer, 0, peer.requests - LINK_REQUESTS_MAX // 2)
    assert peer.stopped == Stopped.BY_LINK
    intake.remove_under_way(peer, 0, 1)
    assert not peer.stopped
    intake.check_invariants()


def test_a_link_with_too_many_bytes_waits_for_both_of_its_bounds() -> None:
    intake = Intake()
    peer = admitted(intake)
    intake.add_under_way(peer, LINK_BYTES_UNDER_WAY_MAX, LINK_REQUESTS_MAX // 2)
    assert not peer.stopped
    intake.add_under_way(peer, 1, 0)
    assert peer.stopped == Stopped.BY_LINK
    intake.remove_under_way(peer, 0, 1)
    assert peer.stopped == Stopped.BY_LINK, "it has as many bytes as before"
    intake.add_under_way(peer, 0, 1)
    intake.remove_under_way(peer, peer.under_way, 0)
    assert peer.stopped == Stopped.BY_LINK, "it has half of the requests"
    intake.remove_under_way(peer, 0, 1)
    assert not peer.stopped


def test_too_many_bytes_of_all_stop_everybody_and_who_comes_until_half_are_answered() -> None:
    intake = Intake()
    piece = LINK_BYTES_UNDER_WAY_MAX
    peers = [admitted(intake, f"10.0.0.{n}") for n in range(BYTES_UNDER_WAY_MAX // piece)]
    for peer in peers:
        intake.add_under_way(peer, piece, 1)
    assert not any(peer.stopped for peer in peers)
    other = admitted(intake, "10.0.1.0")
    intake.add_under_way(other, 1, 1)
    late = admitted(intake, "10.0.2.0")
    everybody = [*peers, other, late]
    assert all(peer.stopped == Stopped.BY_DOOR for peer in everybody)
    while intake.under_way >= BYTES_UNDER_WAY_MAX // 2 + piece:
        intake.remove_under_way(peers.pop(), piece, 1)
    assert all(peer.stopped for peer in everybody)
    intake.remove_under_way(peers.pop(), piece, 1)
    assert intake.under_way == BYTES_UNDER_WAY_MAX // 2 + 1 - piece
    assert not any(peer.stopped for peer in everybody)
    intake.check_invariants()


def test_unfinished_bytes_are_bounded_and_who_gives_some_back_is_not_cut_off() -> None:
    intake = Intake(unfinished=100)
    one, other = admitted(intake), admitted(intake, "10.0.0.2")
    assert intake.count_unfinished(one, 60) == ""
    assert intake.count_unfinished(other, 40) == ""
    assert "held already" in intake.count_unfinished(other, 1)
    assert intake.count_unfinished(one, -1) == ""
    assert intake.count_unfinished(other, 0) == ""
    assert "held already" in intake.count_unfinished(one, 2)
    assert intake.count_unfinished(other, -1) == "", "although too many are left"
    intake.check_invariants()


class Transport:
    """A connection that notes when reading stops and goes on."""

    def __init__(self) -> None:
        self.calls: list[str] = []
        self.closes = False

    def pause_reading(self) -> None:
        self.calls.append("stops")

    def resume_reading(self) -> None:
        self.calls.append("goes on")

    def is_closing(self) -> bool:
        return self.closes

    def get_extra_info(self, _: str) -> tuple[str, int]:
        return "10.0.0.1", 1

    def set_write_buffer_limits(self, high: int) -> None: ...

    def write(self, raw: bytes) -> None:
        self.calls.append(f"writes {raw.decode()}")

    def close(self) -> None:
        self.calls.append("closes")


def test_reading_goes_on_once_every_reason_to_stop_has_gone() -> None:
    link, transport = Link(cast(Any, None)), Transport()
    link._transport = cast(Any, transport)
    link.pause_writing()  # the peer takes no answers
    link.stop_reading(Stopped.BY_LINK)
    assert transport.calls == ["stops"]
    link.resume_reading(Stopped.BY_DOOR)
    link.resume_writing()
    assert transport.calls == ["stops"], "too many of its requests are under way"
    link.resume_reading(Stopped.BY_LINK)
    assert transport.calls == ["stops", "goes on"]
    link.pause_writing()
    transport.closes = True
    link.resume_writing()
    assert transport.calls == ["stops", "goes on", "stops"], "it is over"


def test_a_connection_too_many_gets_an_error_and_is_closed() -> None:
    class Door:
        @staticmethod
        def admit(_: Link) -> bool:
            return False

    link, transport = Link(cast(Any, Door())), Transport()
    link.farewell = b"why"
    link.connection_made(cast(Any, transport))
    assert transport.calls == ["writes why", "closes"]
