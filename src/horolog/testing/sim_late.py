"""Messages that may be too late, in a simulation: by a late policy of their topic, or of their own.

They become late while the broker is down, or when its clock steps ahead. Whatever happens, each
message is handed over once, or becomes a dead letter once, or is dropped. A message that is handed
over was not later than its policy allows, by the store time in it.
"""

from __future__ import annotations

from collections import Counter

from horolog.limits import HOUR_MS
from horolog.protocol.commands import (
    CreateTopic,
    DescribeTopic,
    MessageType,
    NewMessage,
    Receive,
    SendMessages,
    Sent,
    TopicSettings,
    TopicType,
)
from horolog.protocol.rocketmq import layout, properties
from horolog.protocol.rocketmq.late_policy import PROPERTY, late_topic, policy_of
from horolog.protocol.rocketmq.message import encode
from horolog.testing.sim_actor import Actor
from horolog.testing.sim_broker import Answer, SimBroker
from horolog.testing.sim_checks import PromiseBroken

TOPIC = "perishable"


class Perishables(Actor):
    """The client that sends messages with a late policy in one simulation."""

    def __init__(self, seed: int, broker: SimBroker) -> None:
        super().__init__(seed, [0, 0.05, 0.15])
        self._broker = broker
        self._policy = policy_of(self._random.choice(["drop", "dead-letter"]), 5_000)
        self._after_ms: dict[str, int | None] = {}  # allowed lateness by message id; None: any
        self.certain: dict[str, int] = {}  # message id → origin, as answered
        self._asked: dict[int, list[str]] = {}  # message ids, by command
        self.latest_ms = 0  # latest due time
        self.steps_back = False  # the clock has stepped back: store times are ahead of it

    def turn(self, topics: tuple[str, ...], wall_ms: int, mono_ms: int) -> tuple[list[Answer], str]:
        """Return the commands of one step, and a description of them."""
        del topics, mono_ms
        settings = TopicSettings(late=self._policy.action, late_after_ms=self._policy.after_ms)
        made = [self._message(wall_ms) for _ in range(self._random.randint(1, 5))]
        create = CreateTopic(TOPIC, TopicType.MIXED, 2, settings)
        send = SendMessages(TOPIC, made)
        self._asked[id(send)] = [message.message_id for message in made]
        return [Answer(create), Answer(send)], f"{len(made)} {TOPIC}"

    def _message(self, wall_ms: int) -> NewMessage:
        message_id = f"L{len(self._after_ms)}"
        own = self._random.choice(["", "", "", "hand-over", "drop 2s", "dead-letter 20s"])
        after = {"": self._policy.after_ms, "drop 2s": 2_000, "dead-letter 20s": 20_000}
        self._after_ms[message_id] = after.get(own)
        due_ms = wall_ms + self._random.choice([500, 3_000, 20_000, 120_000, 2 * HOUR_MS])
        self.latest_ms = max(self.latest_ms, due_ms)
        return encode(
            topic=TOPIC,
            body=message_id.encode(),
            message_id=message_id,
            type=MessageType.DELAY,
            due_ms=due_ms,
            user_properties={PROPERTY: own} if own else None,
        )

    def owns(self, answer: Answer) -> bool:
        """Return whether an answer is to a command of this client."""
        return answer.is_about(TOPIC)

    def noted(self, answer: Answer) -> None:
        """Note an answer that has been released."""
        command, result = answer.command, answer.result
        if isinstance(command, SendMessages) and isinstance(result, Sent) and not result.refused:
            names = self._asked.pop(id(command))
            self.certain.update(zip(names, result.origins, strict=True))

    def finish(self, *, lost_allowed: bool) -> None:
        """Compare, when every message is handed over."""
        there: Counter[str] = Counter()
        letters: Counter[str] = Counter()
        dropped = self._gather(TOPIC, there) + self._gather(late_topic(TOPIC), letters)
        for message_id, times in (there + letters).items():
            if times > 1:
                raise PromiseBroken(
                    f"P3: {message_id} was handed over or a dead letter {times} times"
                )
        expired = {
            name for name, at in self.certain.items() if (at, 0) in self._broker.watch.expired
        }
        if wrong := expired & there.keys() or letters.keys() & self.certain.keys() - expired:
            raise PromiseBroken(
                f"P3: {sorted(wrong)} were too late and handed over, or not and are dead letters"
            )
        if never := {name for name in expired if self._after_ms[name] is None}:
            raise PromiseBroken(f"{sorted(never)} were dropped, and never are too late")
        lost = sorted(self.certain.keys() - there.keys() - expired)
        if len(lost) > dropped and not lost_allowed:
            raise PromiseBroken(f"P2: {lost} were neither handed over nor too late")

    def _gather(self, topic: str, there: Counter[str]) -> int:
        """Consume a topic as a new group; return how many messages retention has dropped."""
        if topic not in self._broker.shard.topics.by_name:
            return 0
        command = Receive("final", topic, -1, "*", 32, 600_000, False, 0, "final")
        while messages := self._broker.ask(command).messages:
            for message in messages:
                stored = layout.decode(message.layout)
                known = properties.decode(stored.properties)
                there[known[properties.UNIQ_KEY]] += 1
                if topic == TOPIC:
                    self._check_in_time(known, stored.store_ms)
        return sum(self._broker.ask(DescribeTopic(topic)).min_offsets)

    def _check_in_time(self, known: dict[str, str], store_ms: int) -> None:
        after_ms = self._after_ms[known[properties.UNIQ_KEY]]
        late_ms = store_ms - int(known[properties.TIMER_DELIVER_MS])
        if after_ms is not None and late_ms > after_ms and not self.steps_back:
            raise PromiseBroken(f"{known[properties.UNIQ_KEY]} was handed over {late_ms} ms late")
