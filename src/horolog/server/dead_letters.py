"""Re-drive dead letters in many turns: each command takes as many as a frame holds."""

from __future__ import annotations

from dataclasses import dataclass, field, replace

from horolog.limits import REDRIVE_REFUSALS_TOLD, TURN_READ_MAX, TURN_TOPICS_MAX
from horolog.protocol.commands import FindMessages, FoundMessage, MessageState
from horolog.protocol.dead_letter_commands import (
    CountDeadLetters,
    DeadLetterCount,
    DeadLetterPage,
    LetterPlace,
    ListDeadLetters,
    Redrive,
    Redriven,
    RefusedLetter,
)
from horolog.protocol.rocketmq.retry import dead_letter_topic
from horolog.server.running import TieredEngine


@dataclass(slots=True)
class RedriveReport:
    """The outcome of a re-drive; `next` is the dead letter where to go on, None at the end."""

    redriven: int = 0
    already: int = 0
    refused: int = 0
    refusals: list[RefusedLetter] = field(default_factory=list)  # the first ones
    unknown: list[str] = field(default_factory=list)  # ids without a dead letter
    first_due_ms: int = 0
    last_due_ms: int = 0
    next: LetterPlace | None = None

    def add(self, done: Redriven) -> None:
        """Add the outcome of one turn."""
        self.redriven += len(done.letters)
        self.already += done.already
        self.refused += len(done.refused)
        self.refusals += done.refused[: REDRIVE_REFUSALS_TOLD - len(self.refusals)]
        for letter in done.letters:
            self.first_due_ms = self.first_due_ms or letter.due_ms
            self.last_due_ms = letter.due_ms
        self.next = done.next


async def count_letters(engine: TieredEngine) -> list[DeadLetterCount]:
    """Return the count of dead letters of every group that has some, by name."""
    found: list[DeadLetterCount] = []
    after = ""
    while True:
        page: list[DeadLetterCount] = await engine.submit(CountDeadLetters(after))
        found += page
        if len(page) < TURN_TOPICS_MAX:
            return found
        after = page[-1].group


async def redrive(engine: TieredEngine, command: Redrive) -> RedriveReport:
    """Re-drive all dead letters that `command` selects, at most its limit.

    Raise the refusal if the core refuses a whole command.
    """
    assert command.due_ms or not command.rate, "due times that are spread need a beginning"
    report = RedriveReport()
    left, first = command.limit, command.first
    while left > 0:
        turn = replace(command, first=first, limit=min(left, TURN_READ_MAX), done=report.redriven)
        done: Redriven = await engine.submit(turn)
        report.add(done)
        left -= len(done.letters) + len(done.refused)
        if done.next is None:
            break
        first = done.next
    return report


async def redrive_ids(engine: TieredEngine, command: Redrive, ids: list[str]) -> RedriveReport:
    """Re-drive the dead letters with these message ids; report the ids that no dead letter has."""
    report = RedriveReport()
    page: DeadLetterPage = await engine.submit(ListDeadLetters(command.group, limit=1, all=True))
    if not page.letters:
        report.unknown += dict.fromkeys(ids)
        return report
    topic = dead_letter_topic(command.group)
    for message_id in dict.fromkeys(ids):
        found: list[FoundMessage] = await engine.submit(FindMessages(topic, message_id))
        places = tuple(
            LetterPlace(each.queue_id, each.queue_offset)
            for each in found
            if each.state is MessageState.DELIVERED
        )
        if not places:
            report.unknown.append(message_id)
        while places:
            turn = replace(command, only=places, limit=TURN_READ_MAX, done=report.redriven)
            done: Redriven = await engine.submit(turn)
            report.add(done)
            places = places[places.index(done.next) :] if done.next is not None else ()
    report.next = None
    return report
