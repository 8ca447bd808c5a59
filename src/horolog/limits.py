"""Every limit, each with its reason.  Values that a client can meet follow RocketMQ's own."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * 1024
SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# --- what a message may be (RocketMQ's published limits) ---------------------------------------
BODY_MAX = 4 * MIB  # most bytes of a message body; 4 194 304 are allowed, one more is not
TOPIC_NAME_MAX = 127  # bytes: the stored layout has one length byte, of which one bit is reserved
GROUP_NAME_MAX = 120  # bytes, so that "%RETRY%" + group is a valid topic name
PROPERTIES_MAX = 16 * KIB  # bytes of user keys and values, tag and keys together
USER_PROPERTIES_MAX = 128  # user properties of one message
STORED_PROPERTIES_MAX = 32_767  # bytes: the stored layout has a signed 16-bit length
MESSAGE_GROUP_MAX = 63  # bytes; RocketMQ requires fewer than 64
MESSAGE_ID_MAX = 255  # bytes; ours: official ids have 34 characters
MESSAGES_PER_SEND_MAX = 16_384  # ours: bounds the work of one request to some 60 ms
REQUEST_BYTES_MAX = 130 * MIB  # a batch of 32 full bodies and their properties
SEND_FIELDS_MAX = 262_144  # ours: of the messages of a 5.x send; reading as many takes some 80 ms
SEND_PROPERTIES_BYTES = 8 * MIB  # ours: of a 5.x send besides bodies: 512 bytes a message
CALL_BYTES_MAX = MIB  # ours: of a request of a 5.x client without messages: some 20 ms
ENDPOINTS_BYTES_MAX = 4 * KIB  # ours: of a 5.x client's access point: it is in a route per queue
TELEMETRY_BYTES_MAX = 4 * MIB  # ours: of what a 5.x client sends on its stream: thread stacks
UNPACKED_BYTES_MAX = 16 * MIB  # ours: of compressed requests of a connection that came together

# --- time -------------------------------------------------------------------------------------
MAX_DELAY_MS = 3_653 * DAY_MS  # ten years; a setting can lower it
NEAR_HOURS = 24  # a message due in a later hour than these is far
LEVEL_STEP_MAX_MS = (
    5 * SECOND_MS
)  # up to this backward step of the wall clock a level stays a FIFO, late by the step
DEDUP_MS = 2 * MINUTE_MS  # a client that retries for longer has reported a failure to its user
DEDUP_MAX_MS = DAY_MS  # ours: a message id is looked up among all messages sent in this time
INVISIBLE_MIN_MS = 10 * SECOND_MS  # of a receive; a shorter lease ends before a client can work
INVISIBLE_MAX_MS = 12 * HOUR_MS  # longest lease that a client can ask for
INVISIBLE_DEFAULT_MS = (
    30 * SECOND_MS
)  # lease of a receive over HTTP or by the command line that names none
REDELIVERY_MIN_MS = 200  # otherwise a nack of 0–10 ms (a defect of Node's client) would spin
LATE_AFTER_MIN_MS = SECOND_MS  # of a late policy; a shorter delay is not lateness but a busy turn
LATE_AFTER_MAX_MS = 366 * DAY_MS  # of a late policy: a year, so that the time stays a plain integer
RETRY_PAUSES_MAX = 128  # pauses in a list between attempts: the list is in every checkpoint
RETRY_MULTIPLIER_MAX = 1_000  # of an exponential back-off; the second pause is the longest then
AUTO_RENEW_MS = 60 * SECOND_MS  # lease of a push consumer, renewed while its session lives
AUTO_RENEW_TOTAL_MAX_MS = (
    3 * HOUR_MS
)  # longest time that a lease is renewed, as by the official proxy
RENEW_AHEAD_MS = 10 * SECOND_MS  # a lease is renewed when less than this is left
RENEW_FIRST_MS = (
    5 * SECOND_MS
)  # time of the first renewal; from its record on, a start knows the client of the lease
CLIENT_EXPIRY_MS = 60 * SECOND_MS  # a client is gone after six missed heartbeats
CLIENT_GONE_INVISIBLE_MS = 1 * SECOND_MS  # leases of a client that has left end after this
POLL_MAX_MS = 20 * SECOND_MS  # longest long poll, as of the official proxy
POLL_MARGIN_MS = 500  # a poll is answered this long before the deadline of its client

# --- receive ----------------------------------------------------------------------------------
RECEIVE_BATCH_MAX = 32  # messages of one receive, as of the official proxy
LEASES_MAX = 1_000_000  # leases of a shard: some 400 bytes each, 600 with auto-renew
PARKED_POLLS_MAX = 20_000  # bounds the memory of waiting long polls
ATTEMPT_ID_MAX = 255  # characters; official ids have 36. The id is kept as long as the poll waits
CLIENTS_REMEMBERED_MAX = (
    65_536  # settings of 5.x clients, groups of 4.x ones: 130 to 300 bytes each
)
CLIENT_TOPICS_SHOWN_MAX = 100  # topics shown of one connected client
CLIENT_SWEEP_MS = 10 * MINUTE_MS  # a client not heard of between two sweeps is forgotten
FILTER_EXPRESSION_MAX = 16 * KIB  # characters; ours: parsed filters are kept in memory
SQL_COST = 64  # cost, in units, of a message tested by a SQL92 filter, with its properties read
SQL_DEPTH_MAX = 200  # operators and parentheses of a SQL92 filter; ours: each may be a nested call
ORDER_COST = 64  # cost, in units, of a message held by a receive in order: its group is read
ORDER_HELD_MAX = 8_192  # held messages of a queue, for each consumer group in order; about 2 MB
SCAN_MAX = 4_096  # consume queue units scanned at once with a tag filter
RECEIVE_SCAN_MAX = (
    16_384  # units that a poll scans in one turn, about 1 ms; the next turn continues
)
TURN_SCAN_MAX = 65_536  # units that all polls scan in one turn: about 3 ms
TURN_SERVED_MAX = 128  # groups whose polls a turn checks, and receives that it answers: about 5 ms
SCAN_WAIT_MS = 5 * SECOND_MS  # a receive that does not wait continues a long scan for so long

# --- topics -----------------------------------------------------------------------------------
QUEUES_MAX = 1_024  # queues of a topic; ours: a route must fit a response
QUEUES_DEFAULT = 8  # queues of a topic whose creator names no count
TOPICS_MAX = 65_535  # ours: bounds registry and checkpoint
TOPIC_ATTRIBUTES_MAX = 16 * KIB  # bytes of JSON; ours: attributes are in every checkpoint
GROUPS_MAX = 65_535  # ours: bounds registry and checkpoint
GROUP_ATTRIBUTES_MAX = 16 * KIB  # bytes of JSON; ours: attributes are in every checkpoint

# --- transactions -----------------------------------------------------------------------------
TRANSACTION_TIMEOUT_MS = 6 * SECOND_MS  # RocketMQ's: time until the first check of a transaction
TRANSACTION_CHECK_MS = 30 * SECOND_MS  # RocketMQ's: time between two checks of a transaction
TRANSACTION_CHECK_MAX = 15  # RocketMQ's: checks before a transaction is given up
TRANSACTION_SLOW_CHECKS = 5  # after so many checks without an outcome, checks come half as often
TRANSACTION_LOOK_MS = (
    5 * MINUTE_MS
)  # a check without a connected producer is repeated after this, or when one connects
TRANSACTION_OPEN_MS = (
    72 * HOUR_MS
)  # then a transaction is given up in any case: it holds back retention of the log
TRANSACTION_RECOVERY_MAX_MS = (
    HOUR_MS  # longest time until the first check that a producer may choose: the proxy's
)
TRANSACTIONS_OPEN_MAX = 100_000  # open transactions of a shard: some 400 bytes of memory each
TRANSACTIONS_OVER_KEPT = 16_384  # last ended transactions: to end one again gets the same reply
TURN_CHECKS_MAX = 1_024  # due checks of transactions handled in one turn
TURN_GIVEN_UP_MAX = 64  # transactions given up in one turn: each writes a message
CHECKED_AT_ONCE = 64  # half messages read in one turn, to be sent to producers with a check
PRODUCER_TOPICS_MAX = 1_024  # topics of one 5.x producer for which it is asked about transactions
PRODUCERS_TOPICS_MAX = 262_144  # of all of them together: some 200 bytes each

# --- recurring schedules ----------------------------------------------------------------------
SCHEDULES_MAX = 10_000  # ours: bounds registry and checkpoint
SCHEDULE_NAME_MAX = 127  # characters, as of a topic name
SCHEDULE_BYTES_MAX = (
    64 * KIB
)  # of a schedule as JSON with its body; ours: it is in every checkpoint
SCHEDULES_BYTES_MAX = 16 * MIB  # of all schedules; ours: they are kept in memory
CRON_MAX = 256  # characters of a cron expression; ours: the longest useful lists are shorter
SCHEDULE_INTERVAL_MIN_MS = (
    1 * SECOND_MS
)  # as of cron with seconds; more often is a stream of its own
SCHEDULE_TIMES_MAX = 1_000_000_000_000  # firings; ours: one a second for 30 000 years
SCHEDULE_JITTER_MAX_MS = 12 * HOUR_MS  # ours: a firing is planned at most a day ahead
PLAN_AHEAD_MS = DAY_MS  # firings are planned so far ahead: near ones, which no tier takes over
PLAN_LEAD_MS = 10 * SECOND_MS  # the next firing is planned so long before the last planned one
PLANNED_MAX = 32  # firings of one schedule that are planned and not yet due
TURN_SCHEDULES_MAX = 256  # schedules listed in one turn
TURN_PLANS_MAX = 64  # schedules planned in one turn: about 5 ms
PLAN_RETRY_MS = 10 * SECOND_MS  # planning that failed is tried again after this
PREVIEW_MAX = 1_000  # next firings computed for one request

# --- turns ------------------------------------------------------------------------------------
TURN_HAND_OVER_MAX = 4_000  # messages: about 5 ms of work, so that acks need not wait
TURN_HAND_OVER_BYTES = 2 * MIB  # of messages handed over in one turn: the bound for large bodies
TURN_COMMANDS_MAX = 2_048  # commands of one turn
FILED_TOGETHER_MAX = 1_024  # messages filed in one batch; larger batches gain little
FILED_TOGETHER_BYTES = MIB  # of records filed in one batch, which are in memory meanwhile
FILED_TOGETHER_MS = 100  # longest wait of a message for others of its batch
LOAD_CHUNK = 8_192  # chain entries walked before loading a window yields to other work
WINDOW_SECONDS = 10  # seconds loaded ahead of the wheel
TURN_TOPICS_MAX = 1_024  # topics listed in one turn: about 5 ms
TURN_GROUPS_MAX = 1_024  # consumer groups listed in one turn: about 5 ms
TURN_LISTED_MIN = 256  # topics, groups, lags, messages listed; then further lists wait for a turn
TURN_QUEUES_WRITTEN_MAX = (
    16  # queues written in a turn before a checkpoint: 1 to 5 ms, as new ones make a directory
)
TURN_QUEUES_SEARCHED_MAX = (
    64  # queues in which a turn searches for where they begin after retention: 1 to 5 ms
)
TURN_LAG_QUEUES_MAX = 4_096  # queues whose lag one request counts in one turn: about 3 ms
COUNTED_TOPICS = 100  # ours: topics with metrics, 30 series each; a setting changes it
COUNTED_GROUPS = (
    100  # ours: (consumer group, topic) pairs with metrics, 3 series each; a setting changes it
)
COUNTED_MAX = 10_000  # highest value of both settings: a scrape copies them in less than 5 ms
RATED_PAIRS_MAX = (
    4_096  # (consumer group, topic) pairs whose rates are kept: a look-up each a minute
)
TURN_READ_MAX = 1_024  # messages of one bulk read in one turn: about 5 ms
TURN_READ_BYTES = 2 * MIB  # of messages of one bulk read in one turn: the bound for large bodies
TURN_LEASED_BYTES = 32 * MIB  # leased by the receives of one turn; a further one gets one message
TURN_SEARCHES_MAX = 2  # queues searched for a time in one turn: some 30 messages are read for each
TURN_PULLED_MAX = 2_048  # messages read for 4.x pulls in one turn: some 10 ms
TURN_PULLED_BYTES = 8 * MIB  # of messages read for 4.x pulls in a turn: the bound for large bodies
BULK_ROWS = 16_384  # messages that a bulk recall examines in one turn
BULK_TAGGED_ROWS = 2_048  # of these, messages with the right tag code, whose tags must be compared
HISTORY_FRAMES = 512  # frames of the log read in one turn for the history of a message: about 5 ms
HISTORY_BYTES = 4 * MIB  # of frames read in one turn for a history: the bound for large frames
HISTORY_FRAMES_MAX = 131_072  # frames read for one history: some seconds; then it has gaps
HISTORY_BYTES_MAX = 1_024 * MIB  # of frames read for one history: the bound for large frames
HISTORY_EVENTS_MAX = 1_000  # events of one message: more leases than a person reads
ID_LOOK_UPS = 512  # look-ups of an id in one turn, files times topics: about 5 ms
FIND_MAX = 1_000  # log records read for one look-up by id or key, or recall by id; some 20 ms
FIND_BYTES_MAX = 64 * MIB  # of the messages that one look-up finds
TURN_FOUND_MAX = 64  # of these, read in one turn: about 5 ms
BULK_MOVED_ROWS = 256  # messages that a bulk reschedule copies in one turn: about 8 ms
BULK_MOVED_BYTES = 2 * MIB  # of messages that a bulk reschedule copies in one turn
MOVES_KEPT = 4  # names of bulk reschedules that are stored with a message that they have moved
MOVE_NAME_MAX = 64  # characters of such a name: it is stored in every moved message
KEY_RECALL_MAX = 128  # log records with the key of a recall by key, all decided in one turn
UNSYNCED_BYTES_MAX = 8 * MIB  # appended to the log and not yet written; more waits for the disk
INPUTS_MAX = 16_384  # commands that wait for a turn: eight turns; as many acks and recalls again
INPUTS_BYTES_MAX = 64 * MIB  # of messages in waiting commands: a second of the disk
LOG_WAITING_BYTES_MAX = MIB  # of lines that wait for a blocked stderr; further lines are dropped

# --- clients ----------------------------------------------------------------------------------
TELEMETRY_STREAMS_MAX = 65_536  # of all 5.x clients: some 2 kB each, without what they have sent
CLIENT_TOPICS_MAX = 262_144  # topics of all 5.x clients that are shown, some 150 bytes each
STREAMS_MAX = 1_000  # concurrent calls of one connection: the usual limit of HTTP/2 servers
CONNECTIONS_MAX = 20_000  # of all ports for clients; an idle one takes 8 kB, with TLS 50 kB
FILES_MIN = 128  # files that the process must be able to open: the reserve, and thirty clients
FILES_RESERVE_MIN = 64  # descriptors reserved for log, hours, queues, runs, keys
FILES_RESERVE_MAX = 4_096  # the reserve of a large broker; it may also use what connections leave
ADDRESS_SHARE = 75  # percent of connections, polls and bytes that clients of one address may take
LINK_BYTES_UNDER_WAY_MAX = 16 * MIB  # of a connection's unanswered requests; then it is not read
LINK_REQUESTS_MAX = 4_096  # unanswered requests of a connection, without polls: INPUTS_MAX / 4
BYTES_UNDER_WAY_MAX = 64 * MIB  # of all unanswered requests; above it no connection is read
REPLIES_BYTES_MAX = 64 * MIB  # of replies between 4.x clients that are not yet delivered
UNFINISHED_BYTES_MAX = 256 * MIB  # of partly received requests; then who adds to them is cut off
UNFINISHED_SMALL = 8 * KIB  # a request this small is always accepted: at most 160 MiB in all
UNFINISHED_FRAME_MS = MINUTE_MS  # for one request, TLS handshake or record; through a slow tunnel
TLS_HANDSHAKE_MAX = 16 * KIB  # bytes that a client sends in its handshake; clients send up to 3 KB
TLS_HANDSHAKE_BYTES = 64 * KIB  # that a handshake under way counts for: it takes 50 kB, at most 130
TLS_RECORD_BYTES = 17 * KIB  # that a part of a TLS record counts for: OpenSSL's buffer
KV_BYTES_MAX = MIB  # of the name server's key-value table, which is always written as a whole
UNREAD_BYTES_MAX = 16 * MIB  # of responses that a 4.x client has not read; then it gets no more
UNREAD_SMALL = 4 * KIB  # a response this small is always sent: LINK_REQUESTS_MAX are 16 MiB
UNREAD_ALL_BYTES_MAX = (
    256 * MIB
)  # of all of them; then clients with unread ones get no more, at twice as much no client does
UNREAD_STUCK_MS = 10 * SECOND_MS  # then a client that has read nothing for so long is cut off
ANSWER_BYTES_MAX = (
    8 * MIB
)  # of messages in a reply to a 4.x pop or query, exceeded by one at most; clients read 16 MiB
SHAPES_MAX = 8  # message shapes kept per connection: few producers have more
SHAPE_NAMES_MAX = 32  # properties of one shape
SHAPE_TEXT_MAX = 4 * KIB  # bytes of a text that is read by a shape; longer ones need no fast path
REMARK_MAX = 4 * KIB  # characters of the failure text in a response to a 4.x client
ACKS_PER_REQUEST_MAX = 4_096  # messages in one acknowledgement of a client: about 10 ms
ACK_BITS_BYTES_MAX = KIB  # of the bit set of such an acknowledgement: twice its messages
REMOTING_FIELDS_MAX = 32_768  # ours: of the header of a 4.x request: up to 30 ms; clients send 20
REMOTING_CONTENT_MAX = MIB  # ours: of a body as JSON of a 4.x client, but a heartbeat: about 20 ms
HEARTBEAT_NAME_MAX = 1_024  # ours: characters of a client's id, a 4.x one's group or topic: kept
PULL_BYTES_MAX = 512 * KIB  # of messages in a response to a 4.x pull; more only with one message
HEARTBEAT_BYTES_MAX = 4 * MIB  # ours: of a 4.x client: tens of thousands of subscriptions, 70 ms
SUBSCRIPTIONS_BYTES_MAX = 64 * MIB  # of the subscriptions of all 4.x consumers
REPORT_BYTES_MAX = 256 * KIB  # ours: of what a 4.x client answers about its queues; 25 ms to read
NOTIFIED_AT_ONCE = 1_000  # members of changed groups that are notified without a pause: some 10 ms
NOTIFY_MS = 100  # members of a group that changes more often are notified only so often
PULLED_QUEUES_MAX = 65_536  # queues whose pull position of a 4.x group is remembered; some 10 MB
RESET_QUEUES_MAX = 65_536  # queues with a reset that 4.x pull consumers must learn of; some 10 MB
QUEUE_LOCKS_MAX = 65_536  # locks of all orderly 4.x consumers; more are not granted
QUEUE_LOCK_MS = MINUTE_MS  # lock of an orderly 4.x consumer, which renews it every 20 s
REMOTING_CLIENT_EXPIRY_MS = 2 * MINUTE_MS  # four missed heartbeats of a 4.x client
REMOTING_IDLE_MS = (
    2 * MINUTE_MS
)  # of a 4.x connection, as of official brokers; heartbeats every 30 s

# --- access -----------------------------------------------------------------------------------
ACCESS_KEY_MAX = 128  # bytes of the name of an identity
TOML_BYTES_MAX = 4 * MIB  # ours: of --config and --access; 30 000 identities, 2 s to read
ACCESS_SECRET_MIN = 8  # characters of a secret or a token: shorter ones can be guessed by trying

# --- the log ----------------------------------------------------------------------------------
SEGMENT_BYTES = 256 * MIB  # of a segment file of the commit log
RETENTION_BYTES_MAX = 10**15  # a petabyte; more is a typing error, and 0 means no bound
FRAME_BYTES_MAX = 1 * MIB  # of a frame, unless one atomic unit is larger
MARK_IDLE_MS = 100  # an idle log states its durable position this long after the last group commit
FLUSH_INTERVAL_MS = 500  # between two syncs with `flush = interval`
CHECKPOINT_INTERVAL_MS = 10 * SECOND_MS  # longest time between two checkpoints
CHECKPOINT_LOG_BYTES = (
    64 * MIB
)  # of log between two checkpoints, to keep the tail to replay short under load
CHECKPOINT_START_BYTES = (
    4 * MIB
)  # of log replayed by a start, from which on it takes a checkpoint at once, for the next start
CHECKPOINTS_KEPT = 2  # the newest one, and one before it in case the newest is damaged
FINISHED_HOURS_MAX = 64  # finished hours under a simulated clock; then a checkpoint frees them
FRAME_INDEX_BLOCK = 64 * KIB  # bytes of a segment for each slot of the frame index
FRAMES_OPEN_BYTES = 4 * MIB  # of frame bodies in memory: messages handed over are received soon
FRAMES_OPEN_MAX = 4_096  # frames kept in memory: the bound for small frames
FRAMES_AHEAD_BYTES = 64 * KIB  # read at once where small frames are read one after another
DAMAGED_FRAMES_MAX = 65_536  # remembered, so that each is reported once and not read again
SECTORS_LOST_MAX = 64  # unreadable sectors of the log; with more the disk itself has failed
HOLES_READ_MAX = 256  # holes read by one search by store time: some 20 ms
HOLES_REPORTED_MAX = 65_536  # queue offsets that cannot be read, each reported once
QUEUE_SEARCH_UNITS = 4_096  # damaged units in a row whose messages are searched for in the log
QUEUE_SEARCH_BYTES = (
    64 * MIB
)  # of log between the intact neighbours of these units: some 50 ms, once

# --- the far store (docs/decisions/0009-runs.md has the measurements) ---------------------------
FAR_BUFFER_BYTES = 128 * MIB  # of records in a far buffer; then the buffer becomes a run
FAR_BUFFER_BYTES_MIN = 64 * KIB  # lowest value of the setting
FAR_BUFFER_BYTES_MAX = 128 * MIB  # highest value of the setting; 9 bytes of memory a message
RUNS_MAX = 32  # runs made from buffers; above it they are merged into days and months
PART_RUNS_MAX = 8  # runs of one day or month; above it they are merged into one
RUNS_OPEN_MAX = 128  # run files mapped at the same time, or a quarter of the reserve of descriptors

# --- adoptions --------------------------------------------------------------------------------
ADOPTION_APP_MAX = 200  # bytes; ours: the name is in every ADOPT record and in the checkpoint
ADOPTION_APPS_MAX = 10_000  # apps whose highest version is remembered; the oldest are forgotten
ADOPTION_FINGERPRINT_MAX = 255  # bytes; it is in every ADOPT record and in the checkpoint
ADOPTION_FILES_MAX = 4_096  # files of one transaction: its record is one frame
ADOPTION_INLINE_BYTES = 8 * MIB  # a smaller transaction is written to the log, and leaves no files
ADOPTION_PIECE_MAX = 8 * MIB  # bytes of a file in one request of the admin API
STAGING_TTL_MS = DAY_MS  # an uncommitted transaction to which nothing was written is removed

# --- the lake -----------------------------------------------------------------------------------
OFFLOAD_MARGIN_MS = 24 * HOUR_MS  # messages due earlier are not offloaded: they would be back soon
LAKE_MARGIN_MS = 3 * HOUR_MS  # between the commit of an offload and the first due time it takes
OFFLOAD_HOURS_MAX = 1_000_000  # hours times topics of one offload: 24 bytes each in its record
LAKE_RECALLED_MAX = 1_000_000  # recalls in the lake that are remembered: 32 bytes of memory each
LAKE_RECALL_ROWS = 4_096  # rows that a bulk recall names in one step
PROMOTE_AHEAD_MS = 2 * HOUR_MS  # an hour is promoted this long before it begins
PROMOTE_LATE_MS = 30 * MINUTE_MS  # the broker promotes an hour itself this long before it begins

# --- disk -------------------------------------------------------------------------------------
CONTROL_RESERVE_BYTES = 64 * MIB  # kept free for acks, recalls, hand-over and one checkpoint
RETENTION_MS = 72 * HOUR_MS  # of the log, unless a setting differs: RocketMQ's fileReservedTime
HOUR_KEEP_MS = (
    3 * HOUR_MS
)  # a finished hour is kept this long, so that a late recall gets a true reply
QUEUE_FILE_UNITS = 262_144  # 20-byte units per consume queue file: 5 MiB
QUEUE_FILES_OPEN_MAX = 1_024  # of all queues, or half of the reserve of descriptors
REPAIR_ROWS_MAX = 1_024  # index entries repaired at once: 0.5 s in an hour of a million messages
REPAIR_SEARCH_BYTES = (
    64 * MIB
)  # of log between the intact neighbours of damaged entries: some 50 ms, once
PROBLEMS_MAX = 200  # problems in health and in every checkpoint; further ones are counted only
PROBLEM_KEEP_MS = DAY_MS  # a loss stays in health at least this long, so that an operator sees it
PROBLEM_TEXT_MAX = 1_000  # characters of the text of a problem
BACKUP_DAMAGE_MAX = 200  # damaged stretches of a data directory that a manifest names

# --- admin API --------------------------------------------------------------------------------
ADMIN_CONNECTIONS_MAX = 1_024  # or half of the reserve of descriptors; then idle ones are closed
ADMIN_BODY_S = 30  # seconds for one body to arrive; the largest one, through a slow tunnel
ADMIN_SMALL_BODY = 64 * KIB  # a body so small is always accepted: at most 64 MiB on all connections
ADMIN_BODIES_BYTES = 256 * MIB  # of partly received larger bodies: 32 pieces of an adoption
ADMIN_UNREAD_BYTES_MAX = 64 * MIB  # of unread responses; then large responses are refused
ADMIN_READS_AT_ONCE = 4  # bulk reads whose responses are built at the same time; others wait
ADMIN_REQUEST_MAX = 26 * MIB  # the largest body as JSON, where a byte may take six characters
ADMIN_LIST_MAX = 1_000  # pending messages in one response; clients page with `from`
HISTOGRAM_ROWS = 10_000  # of GET /v1/pending/histogram: a year by hour, a week by minute
SHARED_ANSWERS = 64  # responses kept for a second for equal requests; the largest has 250 kB
HOT_SECONDS = 10  # in GET /v1/overview: the fullest seconds of this hour and the next
OVERVIEW_TOPICS = 50  # topics with the most pending, in GET /v1/overview, polled every second
SEARCH_TURNS = 64  # turns of the core for a page of a search; then the page says where to go on
REDRIVE_MAX = 100_000  # dead letters re-driven by one request: about a second; clients repeat it
REDRIVE_RATE_MAX = 1_000_000  # messages a second; a higher rate is as good as all at once
REDRIVE_REFUSALS_TOLD = 100  # refusals of one request that are listed; the others are counted
ADMIN_READ_MAX = 65_536  # messages in one response of a bulk read
ADMIN_READ_BYTES = 16 * MIB  # of their records; a response is built in memory
