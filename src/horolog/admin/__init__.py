"""The admin port: HTTP with JSON, for operators, programs without a client, and the page.

app, server                app and port; `warning_limit` limits uvicorn's warnings
endpoints, openapi         how a route is declared; the OpenAPI description made from it
documents                  route of that description
requests, bodies           reading of requests; `request_shapes`: models of their JSON bodies
shapes, message_shapes,
dead_letter_shapes,
adoption_shapes, page_shapes   types of results; `views` makes them
answers, status            success and error shape; `outgoing` bounds the memory of unread answers
access, hosts              access control: by identity, and by Host and Origin
messages                   routes: send, find, receive and ack messages
pending, histogram         routes: count and list pending messages
history, search, look_ups  routes: one message with its history, lists of messages
recalls, schedules         routes: recall and reschedule; recurring schedules
topics, groups, clients    routes: topics, consumer groups, connected clients
dead_letters               routes: count, list and re-drive dead letters
broker, metrics, overview  routes: the broker itself
backup                     routes: backups
adoptions, offloads        routes: whole files of messages, in and out
page                       the files of the page
shared                     one answer for all clients that ask at the same time
client                     a client of this API
"""
