"""Connected clients of all doors over HTTP, by client id."""

from __future__ import annotations

import heapq
from collections.abc import AsyncIterator, Iterator, Sequence
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from horolog.admin.answers import answer, check_allowed
from horolog.admin.endpoints import endpoint, integer_parameter, text_parameter
from horolog.admin.requests import query, query_int
from horolog.admin.shapes import Client, Clients
from horolog.admin.views import iso
from horolog.limits import ADMIN_LIST_MAX
from horolog.server.connected import ConnectedClient, KnowsClients, kind_of
from horolog.server.listing import paced

_KINDS_OF = 100  # members to look at for the way a group consumes, in a list


@endpoint(
    "GET",
    "/v1/clients",
    query=(
        integer_parameter("limit", 1, ADMIN_LIST_MAX, 100),
        text_parameter("after"),
        text_parameter("group"),
    ),
    answer=Clients,
)
async def list_clients(request: Request) -> Response:
    """GET /v1/clients: list connected clients, at most `limit` after `after`.

    With `group`, only the members of that consumer group.
    """
    parameters = query(request, "limit", "after", "group")
    limit = query_int(parameters, "limit", 100, 1, ADMIN_LIST_MAX)
    after, group = parameters.get("after", ""), parameters.get("group", "")
    doors = doors_of(request)
    found: list[tuple[str, ConnectedClient]] = []
    async for client in paced(_members(doors, group) if group else _all(doors)):
        if (place := _place(client)) > after:
            found.append((place, client))
    page = heapq.nsmallest(limit + 1, found)
    shown = [client_view(client) for _, client in page[:limit]]
    return answer({"clients": shown, "next": page[limit - 1][0] if len(page) > limit else None})


def _all(doors: Sequence[KnowsClients]) -> Iterator[ConnectedClient]:
    for door in doors:
        yield from door.connected()


def _members(doors: Sequence[KnowsClients], group: str) -> Iterator[ConnectedClient]:
    for door in doors:
        yield from door.members(group)


def _place(client: ConnectedClient) -> str:
    """Return the sort key of a client in the list; several connections may have one client id."""
    return f"{client.client_id}|{client.address}"


def doors_of(request: Request) -> Sequence[KnowsClients]:
    """Return the doors of this broker."""
    check_allowed(request)
    doors: Sequence[KnowsClients] = request.app.state.doors
    return doors


def members_of(request: Request, group: str) -> AsyncIterator[ConnectedClient]:
    """Yield the connected clients of a consumer group."""
    return paced(_members(doors_of(request), group))


def kind_of_group(request: Request, group: str) -> str:
    """Return how the clients of a group consume, by a look at some of them."""
    return kind_of(list(islice(_members(doors_of(request), group), _KINDS_OF)))


def client_view(client: ConnectedClient) -> Client:
    """Return a connected client as JSON fields."""
    return {
        "client_id": client.client_id,
        "door": client.door,
        "address": client.address,
        "language": client.language,
        "version": client.version,
        "consumes": client.consumes,
        "groups": list(client.groups),
        "producer_groups": list(client.producer_groups),
        "topics": list(client.topics),
        "connected_ms": client.connected_ms,
        "connected": iso(client.connected_ms),
        "tls": client.tls,
    }
