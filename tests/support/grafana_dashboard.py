"""The dashboard for Grafana, made with grafana-foundation-sdk.

A test compares the committed JSON with it.

python -m tests.support.grafana_dashboard     # writes it
"""

from __future__ import annotations

from importlib import resources
from pathlib import Path
from typing import Any

from grafana_foundation_sdk.builders import common, dashboard, prometheus, stat, timeseries
from grafana_foundation_sdk.builders import dashboard as builders
from grafana_foundation_sdk.builders import heatmap as heatmaps
from grafana_foundation_sdk.cog.encoder import JSONEncoder
from grafana_foundation_sdk.models.common import (
    LegendDisplayMode,
    LegendPlacement,
    SortOrder,
    TooltipDisplayMode,
)
from grafana_foundation_sdk.models.dashboard import (
    DataSourceRef,
    VariableHide,
    VariableRefresh,
)
from grafana_foundation_sdk.models.prometheus import PromQueryFormat
from tests.support.grafana_panels import ROWS, Panel, chosen_by

PLACE = Path(str(resources.files("horolog.metrics") / "horolog.dashboard.json"))
_SOURCE = DataSourceRef(type_val="prometheus", uid="${datasource}")
_REFS = "ABCDEFGH"  # names of the queries of a panel


def _variables(made: builders.Dashboard) -> None:
    made.with_variable(
        builders.DatasourceVariable("datasource").label("Data source").type("prometheus")
    )
    for name, query in (
        ("job", "label_values(horolog_build_info, job)"),
        ("instance", 'label_values(horolog_build_info{job="$job"}, instance)'),
    ):
        variable = (
            builders.QueryVariable(name)
            .label(name.capitalize())
            .datasource(_SOURCE)
            .query(query)
            .refresh(VariableRefresh.ON_TIME_RANGE_CHANGED)
            .hide(VariableHide.DONT_HIDE)
        )
        if name == "instance":
            variable = variable.multi(multi=True).include_all(include_all=True).all_value(".*")
        made.with_variable(variable)


def _panel(panel: Panel) -> Any:
    if panel.kind == "number":
        made: Any = stat.Panel().reduce_options(common.ReduceDataOptions().calcs(["lastNotNull"]))
    elif panel.kind == "heat":
        made = heatmaps.Panel()
    else:
        made = (
            timeseries.Panel()
            .legend(
                common.VizLegendOptions()
                .display_mode(LegendDisplayMode.LIST)
                .placement(LegendPlacement.BOTTOM)
                .show_legend(show_legend=True)
            )
            .tooltip(
                common.VizTooltipOptions().mode(TooltipDisplayMode.MULTI).sort(SortOrder.DESCENDING)
            )
            .fill_opacity(8)
        )
    made.title(panel.title).description(panel.help).datasource(_SOURCE)
    made.span(panel.width).height(4 if panel.kind == "number" else 8)
    if panel.kind != "heat":
        made.unit(panel.unit)
    for ref, query in zip(_REFS, panel.queries, strict=False):
        target = (
            prometheus.Dataquery().expr(chosen_by(query.expression)).legend_format(query.legend)
        )
        target = target.ref_id(ref)
        if panel.kind == "heat":
            target = target.format(PromQueryFormat.HEATMAP)
        made.with_target(target)
    return made


def dashboard_json() -> str:
    """Return the dashboard as Grafana imports it."""
    made = (
        dashboard.Dashboard("horolog")
        .uid("horolog")
        .description("Brokers of messages that must arrive later.")
        .tags(["horolog", "messaging"])
        .refresh("30s")
        .time("now-1h", "now")
        .timezone("browser")
        .editable()
    )
    _variables(made)
    for title, panels in ROWS.items():
        made.with_row(dashboard.Row(title))
        for panel in panels:
            made.with_panel(_panel(panel))
    return JSONEncoder(sort_keys=True, indent=2).encode(made.build()) + "\n"


if __name__ == "__main__":
    PLACE.write_text(dashboard_json(), encoding="utf-8")
