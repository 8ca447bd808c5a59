"""docs/reference/metrics.md, made from the table of metrics."""

from __future__ import annotations

from horolog.limits import COUNTED_GROUPS, COUNTED_TOPICS
from horolog.metrics.present import OTHER
from horolog.metrics.table import GROUPS, OF_PROCESS

_HEAD = """# Metrics

{made}

`GET /metrics` on the admin port returns these metrics in the text format of Prometheus, or as OpenMetrics where
`Accept` asks for it. How to scrape them, which alerts there are and what to do about each:
[monitor a broker](../guides/monitor.md).

* Counters begin at 0 with the process, as Prometheus expects; only `horolog_repairs_total` continues. All times are
  seconds, all sizes bytes.
* Every topic has series of its own, up to `metrics_topics` ({topics}); further topics count together as
  `topic="{other}"`. A topic keeps its series until it is deleted. `metrics_groups` ({groups}) pairs of a group and a
  topic have series; `horolog_groups_left_out` says how many have none.
* Values are read at most once a second, whoever asks; gauges by topic and by group less often, so that reading them
  takes at most a hundredth of the broker's time. No value waits for the disk: metrics work also while the disk hangs.
* Lateness is measured when a hand-over is committed, which is when consumers can see the message.
"""


def metrics_page(made: str) -> str:
    """Return the page; `made` is the note that says how the page is made."""
    lines = [
        _HEAD.format(made=made, topics=COUNTED_TOPICS, groups=COUNTED_GROUPS, other=OTHER).rstrip(
            "\n"
        )
    ]
    for title, metrics in GROUPS.items():
        lines += ["", f"## {title}", "", "| name | type | labels | meaning |", "|---|---|---|---|"]
        for metric in metrics:
            labels = ", ".join(f"`{label}`" for label in metric.labels)
            lines.append(f"| `{metric.full_name}` | {metric.type} | {labels} | {metric.help} |")
    lines += [
        "",
        "Metrics of the process, under the names that all programs use:",
        "",
        "| name | meaning |",
        "|---|---|",
        *(f"| `{name}` | {meaning} |" for name, meaning in OF_PROCESS.items()),
    ]
    return "\n".join(lines) + "\n"
