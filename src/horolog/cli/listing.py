"""Lists of the admin API that are fetched page by page."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from horolog.limits import ADMIN_LIST_MAX

if TYPE_CHECKING:
    from horolog.admin.client import AdminClient


def fetch_list(
    client: AdminClient,
    path: str,
    field: str,
    parameters: Mapping[str, object],
    *,
    limit: int | None = None,
    cursor: str = "after",
) -> dict[str, Any]:
    """Fetch the pages of a list; return the last one, with the rows of all of them in `field`.

    limit   most rows; None: all.  If rows are left, `next` of the result is not None
    cursor  parameter that takes the `next` of the page before
    """
    rows: list[dict[str, Any]] = []
    after: object = None
    while True:
        size = ADMIN_LIST_MAX if limit is None else min(limit - len(rows), ADMIN_LIST_MAX)
        page = client.get(path, {**parameters, "limit": size, cursor: after})
        rows += page[field]
        after = page["next"]
        if after is None or (limit is not None and len(rows) >= limit):
            return {**page, field: rows}
