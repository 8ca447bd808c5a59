"""The admin port: HTTP with JSON, for operators, for programs without a RocketMQ client, and for the page.

app, server                     the application, and the port it is served on; `complaints` of those who use it badly
endpoints, openapi, documents   a route is declared once; what is made from that
requests, bodies                what comes in; `request_shapes` says what may
shapes, message_shapes, adoption_shapes, page_shapes    what goes out; `views` makes it, `answers` and `status`
                                wrap it, `outgoing` bounds it
access, hosts                   who may ask
messages, pending, histogram    routes: send, receive, find; what waits
history, search, look_ups       routes: one message and its story, lists of them
recalls, schedules              routes: cancel and move; recurring schedules
topics, groups, clients, dead_letters   routes: what there is, and who
broker, metrics, overview, backup       routes: the broker itself
adoptions, offloads             routes: whole files of messages, in and out
page                            the page's own files
shared                          one answer for all who ask at once
client                          a client of this API
"""
