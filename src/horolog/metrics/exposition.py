"""The text formats of Prometheus, made in a thread, once for all who ask within a second."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from itertools import accumulate
from typing import Any

from prometheus_client import CollectorRegistry, ProcessCollector
from prometheus_client.core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    InfoMetricFamily,
)
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.metrics_core import Metric as Family
from prometheus_client.openmetrics import exposition as openmetrics
from prometheus_client.registry import Collector

from horolog.metrics.figures import Figures
from horolog.metrics.metric import Buckets, Metric, Type
from horolog.metrics.present import Present
from horolog.metrics.table import METRICS
from horolog.server.threads import in_pool

_OPENMETRICS = "application/openmetrics-text"
_FAMILIES: dict[Type, Any] = {
    Type.COUNTER: CounterMetricFamily,
    Type.GAUGE: GaugeMetricFamily,
    Type.HISTOGRAM: HistogramMetricFamily,
}


class BrokerCollector(Collector):
    """A collector for prometheus-client of one moment's values."""

    def __init__(self, present: Present) -> None:
        self._present = present

    def collect(self) -> Iterator[Family]:
        """Yield all families, in the order of the table."""
        for metric in METRICS:
            yield family(metric, self._present)


def family(metric: Metric, present: Present) -> Family:
    """Return one family with its series."""
    if metric.type is Type.INFO:
        info = InfoMetricFamily(metric.full_name.removesuffix("_info"), metric.help)
        for row in metric.read(present):
            info.add_metric([], dict(zip(metric.labels, row.labels, strict=True)))
        return info
    made = _FAMILIES[metric.type](
        metric.full_name.removesuffix("_total"), metric.help, labels=metric.labels, unit=metric.unit
    )
    for labels, value in metric.read(present):
        if isinstance(value, Buckets):
            made.add_metric(labels, _cumulated(value), value.total)
        else:
            made.add_metric(labels, value)
    found: Family = made
    return found


def _cumulated(buckets: Buckets) -> list[tuple[str, float]]:
    bounds = [f"{bound:g}" for bound in buckets.bounds]
    return list(zip([*bounds, "+Inf"], accumulate(buckets.counts), strict=True))


def wants_openmetrics(accept: str) -> bool:
    """Return whether an Accept header names OpenMetrics."""
    return any(part.split(";")[0].strip() == _OPENMETRICS for part in accept.split(","))


def text_of(present: Present, *, is_openmetrics: bool) -> tuple[bytes, str]:
    """Return all metrics as text, and its content type; some milliseconds of work."""
    registry = CollectorRegistry(auto_describe=False)
    registry.register(BrokerCollector(present))
    ProcessCollector(registry=registry)
    if is_openmetrics:
        text: bytes = openmetrics.generate_latest(registry)  # type: ignore[no-untyped-call]
        return text, openmetrics.CONTENT_TYPE_LATEST
    return generate_latest(registry), CONTENT_TYPE_PLAIN_0_0_4


class Exposition:
    """Texts of one broker's present values, shared by all who ask within a second."""

    def __init__(self, figures: Figures) -> None:
        self.figures = figures
        self._making = asyncio.Lock()
        self._made: dict[bool, tuple[Present, tuple[bytes, str]]] = {}

    async def text(self, accept: str) -> tuple[bytes, str]:
        """Return the text in the format that an Accept header asks for, and its content type."""
        is_openmetrics = wants_openmetrics(accept)
        async with self._making:
            present = self.figures.read()
            made = self._made.get(is_openmetrics)
            if made is None or made[0] is not present:
                text = await in_pool(lambda: text_of(present, is_openmetrics=is_openmetrics))
                made = self._made[is_openmetrics] = present, text
            return made[1]
