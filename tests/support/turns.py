"""Turns of a core without invariants and chance in between, for tests that count work."""

from __future__ import annotations

from horolog.broker.broker import Input
from horolog.broker.effects import Effects, Reply


class Turns:
    """The core of a world; each turn's writes are written and committed before the next turn."""

    def __init__(self, world) -> None:
        self.clock = world.clock
        self.broker, self.writer = world.broker.core, world.broker.writer
        self.answers: dict[object, object] = {}
        self.last = Effects()

    def turn(self, *commands, tokens: list[object] | None = None) -> list[object]:
        """Run one turn; return the results of these commands, None for those that wait."""
        tokens = tokens or [object() for _ in commands]
        inputs = [Input(*each) for each in zip(tokens, commands, strict=True)]
        replies: list[Reply] = []
        for some in (inputs, []):  # the second turn commits
            log = self.broker.shard.log
            self.last = self.broker.step(
                some,
                wall_ms=self.clock.wall_ms(),
                mono_ms=self.clock.monotonic_ms(),
                commit=log.end,
                durable=log.end,
            )
            self.writer.write(self.last.writes)
            if self.last.checkpoint is not None:
                self.broker.checkpoints.failed()
            replies += self.last.prompt + self.last.replies
        found = {reply.token: reply.result for reply in replies}
        self.answers = {token: result for token, result in found.items() if token not in tokens}
        return [found.get(token) for token in tokens]
