"""Every limit, each with its reason.  Values that a client can meet follow RocketMQ's own."""

from __future__ import annotations

KIB = 1024
MIB = 1024 * 1024
SECOND_MS = 1_000
MINUTE_MS = 60_000
HOUR_MS = 3_600_000
DAY_MS = 24 * HOUR_MS

# --- what a message may be (RocketMQ's published limits) ---------------------------------------
BODY_MAX = 4 * MIB  # 4 194 304 bytes are allowed, one more is not
TOPIC_NAME_MAX = 127  # one length byte in the stored layout, one bit reserved
GROUP_NAME_MAX = 120  # so that "%RETRY%" + group is a topic name
PROPERTIES_MAX = 16 * KIB  # sum of bytes of user keys and values, tag and keys
USER_PROPERTIES_MAX = 128  # count
STORED_PROPERTIES_MAX = 32_767  # the layout's signed 16-bit length
MESSAGE_GROUP_MAX = 63  # bytes; "< 64"
MESSAGE_ID_MAX = 255  # bytes; ours: official ids have 34 characters
MESSAGES_PER_SEND_MAX = 16_384  # ours: bounds the work of one request to some 60 ms
REQUEST_BYTES_MAX = 130 * MIB  # a batch of 32 full bodies and their properties

# --- time -------------------------------------------------------------------------------------
MAX_DELAY_MS = 3_653 * DAY_MS  # ten years; a setting lowers it
NEAR_HOURS = 24  # what is due in a later hour than these is far
LEVEL_STEP_MAX_MS = (
    5 * SECOND_MS
)  # of the wall clock, back: a level stays a FIFO, and is late by as much
DEDUP_MS = 2 * MINUTE_MS  # a client that retries for longer has told its user of a failure
DEDUP_MAX_MS = DAY_MS  # ours: a message id is looked up in all that was sent meanwhile
INVISIBLE_MIN_MS = 10 * SECOND_MS  # receive; a shorter lease ends before a client can work
INVISIBLE_MAX_MS = 12 * HOUR_MS
INVISIBLE_DEFAULT_MS = 30 * SECOND_MS  # receive, over HTTP or by the command, that names none
REDELIVERY_MIN_MS = 200  # a nack of 0–10 ms (Node's defect) would otherwise spin
LATE_AFTER_MIN_MS = SECOND_MS  # of a late policy; less is no lateness but a busy turn
LATE_AFTER_MAX_MS = 366 * DAY_MS  # of a late policy: a year, and a time stays a plain number
RETRY_PAUSES_MAX = 128  # in a list of pauses between attempts: it stands in every checkpoint
RETRY_MULTIPLIER_MAX = 1_000  # of an exponential back-off; the second pause is the longest then
AUTO_RENEW_MS = 60 * SECOND_MS  # lease of a push consumer, renewed while its session lives
AUTO_RENEW_TOTAL_MAX_MS = 3 * HOUR_MS  # as the official proxy
RENEW_AHEAD_MS = 10 * SECOND_MS  # renew when less than this is left
RENEW_FIRST_MS = (
    5 * SECOND_MS
)  # the first renewal: from then on a start knows whom the lease is renewed for
CLIENT_EXPIRY_MS = 60 * SECOND_MS  # six missed heartbeats
CLIENT_GONE_INVISIBLE_MS = 1 * SECOND_MS  # leases of a client that left
POLL_MAX_MS = 20 * SECOND_MS  # long poll, as the official proxy
POLL_MARGIN_MS = 500  # answer this long before the caller's deadline

# --- receive ----------------------------------------------------------------------------------
RECEIVE_BATCH_MAX = 32  # as the official proxy
LEASES_MAX = 1_000_000  # live ones of a shard; some 400 bytes each, 600 with auto-renew
PARKED_POLLS_MAX = 20_000  # memory of waiting long polls
ATTEMPT_ID_MAX = 255  # characters; official ids have 36. It is kept as long as the poll waits
CLIENTS_REMEMBERED_MAX = (
    65_536  # settings of 5.x clients, groups of 4.x ones: 130 to 300 bytes each
)
CLIENT_TOPICS_SHOWN_MAX = 100  # topics that are told of one connected client
CLIENT_SWEEP_MS = 10 * MINUTE_MS  # who is not heard of between two sweeps is forgotten
FILTER_EXPRESSION_MAX = 16 * KIB  # characters; ours: parsed filters are kept
SQL_COST = 64  # a message that a SQL92 filter looks at counts as so many units: it is read, and its properties too
SQL_DEPTH_MAX = (
    200  # operators and parentheses of a SQL92 filter; ours: each may be a call within a call
)
ORDER_COST = 64  # a message that a receive in order holds back counts as so many units: it is read, and its group too
ORDER_HELD_MAX = 8_192  # messages of blocked message groups in a queue, for each consumer group in order; about 2 MB
SCAN_MAX = 4_096  # consume queue units looked at at once with a tag filter
RECEIVE_SCAN_MAX = 16_384  # of one poll in one turn; it goes on in the next: about 1 ms
TURN_SCAN_MAX = 65_536  # of all polls of a turn: about 3 ms
TURN_SERVED_MAX = (
    128  # groups whose waiting polls a turn looks at, and receives that it answers: about 5 ms
)
SCAN_WAIT_MS = 5 * SECOND_MS  # a receive that does not wait looks on for so long

# --- topics -----------------------------------------------------------------------------------
QUEUES_MAX = 1_024  # ours: a route must fit a response
QUEUES_DEFAULT = 8
TOPICS_MAX = 65_535  # ours: bounds registry and checkpoint
TOPIC_ATTRIBUTES_MAX = 16 * KIB  # as JSON; ours: they stand in every checkpoint
GROUPS_MAX = 65_535
GROUP_ATTRIBUTES_MAX = 16 * KIB  # as JSON; ours: they stand in every checkpoint

# --- transactions -----------------------------------------------------------------------------
TRANSACTION_TIMEOUT_MS = 6 * SECOND_MS  # RocketMQ's: then its producer is asked what became of it
TRANSACTION_CHECK_MS = 30 * SECOND_MS  # RocketMQ's: between two checks of a transaction
TRANSACTION_CHECK_MAX = 15  # RocketMQ's: then it is given up
TRANSACTION_SLOW_CHECKS = 5  # after so many a check comes half as often: nobody has known so far
TRANSACTION_LOOK_MS = 5 * MINUTE_MS  # without a producer to ask; it is asked when it comes
TRANSACTION_OPEN_MS = 72 * HOUR_MS  # then it is given up, whoever is there: it holds back the log
TRANSACTION_RECOVERY_MAX_MS = HOUR_MS  # until the first check, as a producer may wish: the proxy's
TRANSACTIONS_OPEN_MAX = 100_000  # of a shard: some 400 bytes of memory each
TRANSACTIONS_OVER_KEPT = 16_384  # that ended last: whoever ends one again is told the same
TURN_CHECKS_MAX = 1_024  # transactions whose check is due, of one turn
TURN_GIVEN_UP_MAX = 64  # transactions that a turn gives up: each is a message to write
CHECKED_AT_ONCE = 64  # half messages that are read for producers in one turn
PRODUCER_TOPICS_MAX = 1_024  # of one 5.x producer, for which it is asked

# --- recurring schedules ----------------------------------------------------------------------
SCHEDULES_MAX = 10_000  # ours: bounds registry and checkpoint
SCHEDULE_NAME_MAX = 127  # characters, as of a topic
SCHEDULE_BYTES_MAX = 64 * KIB  # of one, as JSON with its body; ours: it stands in every checkpoint
SCHEDULES_BYTES_MAX = 16 * MIB  # of all of them; ours: they are kept in memory
CRON_MAX = 256  # characters of a cron expression; ours: the longest useful lists are shorter
SCHEDULE_INTERVAL_MIN_MS = 1 * SECOND_MS  # as cron with seconds; more often is a stream of its own
SCHEDULE_TIMES_MAX = 1_000_000_000_000  # ours: 30 000 years of a firing a second
SCHEDULE_JITTER_MAX_MS = 12 * HOUR_MS  # ours: a firing is planned at most a day ahead
PLAN_AHEAD_MS = DAY_MS  # firings are planned so far ahead: near ones, which no tier takes over
PLAN_LEAD_MS = 10 * SECOND_MS  # the next firing is planned so long before the last planned one
PLANNED_MAX = 32  # firings of one schedule that are planned and not due
TURN_SCHEDULES_MAX = 256  # schedules listed in one turn
TURN_PLANS_MAX = 64  # schedules that are looked at in one turn: about 5 ms
PLAN_RETRY_MS = 10 * SECOND_MS  # when what could not be planned is tried again
PREVIEW_MAX = 1_000  # next firings that are worked out for one question

# --- turns ------------------------------------------------------------------------------------
TURN_HAND_OVER_MAX = 4_000  # messages: about 5 ms of work, so that acks are not kept waiting
TURN_HAND_OVER_BYTES = 2 * MIB  # the same bound for large bodies
TURN_COMMANDS_MAX = 2_048  # commands of one step
FILED_TOGETHER_MAX = 1_024  # messages: beyond that filing more of them together gains little
FILED_TOGETHER_BYTES = MIB  # of their records, which are in memory meanwhile
FILED_TOGETHER_MS = 100  # that a message waits for others, at most
LOAD_CHUNK = 8_192  # chain entries walked before a load yields to other work
WINDOW_SECONDS = 10  # loaded ahead of the wheel
TURN_TOPICS_MAX = 1_024  # topics listed in one turn: about 5 ms
TURN_GROUPS_MAX = 1_024  # the same of consumer groups
TURN_QUEUES_WRITTEN_MAX = 16  # consume queues written in one turn before a checkpoint: 1 to 5 ms, new ones make a directory
TURN_LAG_QUEUES_MAX = 4_096  # queues whose lag one question counts in one turn: about 3 ms
COUNTED_TOPICS = 100  # ours: metrics of their own, 30 to 36 series each; a setting changes it
COUNTED_GROUPS = 100  # the same of consumer groups, for each of their topics
COUNTED_MAX = 10_000  # of both: what a scrape copies stays below 5 ms
RATED_PAIRS_MAX = 4_096  # groups and topics of theirs whose rates are kept: a look each a minute
TURN_READ_MAX = 1_024  # messages read for one bulk read in one turn: about 5 ms
TURN_READ_BYTES = 2 * MIB  # the same bound for large bodies
TURN_LEASED_BYTES = (
    32 * MIB
)  # of messages leased by the receives of one turn; each further one gets one message
TURN_PULLED_MAX = 2_048  # messages read for 4.x pulls in one turn: some 10 ms
TURN_PULLED_BYTES = 8 * MIB  # the same bound for large bodies
BULK_ROWS = 16_384  # messages that a bulk recall looks at in one turn
BULK_TAGGED_ROWS = 2_048  # of which so many with the right tag's code, whose tags must be compared
HISTORY_FRAMES = (
    512  # frames of the log looked at in one turn for what became of a message: about 5 ms
)
HISTORY_BYTES = 4 * MIB  # the same bound for large frames
HISTORY_FRAMES_MAX = 131_072  # altogether, for one message: some seconds; then its history has gaps
HISTORY_BYTES_MAX = 1_024 * MIB  # the same bound for large frames
HISTORY_EVENTS_MAX = 1_000  # of one message: more leases than anybody reads
ID_LOOK_UPS = 512  # of an id in one turn, in files times topics: about 5 ms
FIND_MAX = 1_000  # log records read for one look-up by id or key
BULK_MOVED_ROWS = 256  # messages that a bulk move copies in one turn: about 8 ms
BULK_MOVED_BYTES = 2 * MIB  # the same bound for large bodies
MOVES_KEPT = 4  # names of shifts that are remembered with a message that they have moved
MOVE_NAME_MAX = 64  # characters of such a name: it stands in every message that is moved
KEY_RECALL_MAX = 128  # log records with the key of a recall by key, all decided in one turn
UNSYNCED_BYTES_MAX = 8 * MIB  # appended but not yet written: more waits for the disk
INPUTS_MAX = (
    16_384  # commands that wait for a turn: eight turns; acks and recalls have as many again
)
INPUTS_BYTES_MAX = 64 * MIB  # of messages in them: a second of the disk
LOG_WAITING_BYTES_MAX = MIB  # of lines for stderr that nobody reads; then they are dropped

# --- clients ----------------------------------------------------------------------------------
STREAMS_MAX = 1_000  # calls of one connection at a time: the usual limit of HTTP/2 servers
CONNECTIONS_MAX = 20_000  # of all doors for clients: one of an idle client takes some 8 kB
FILES_MIN = 128  # that the process may open, or no start: the reserve, and some thirty clients
FILES_RESERVE_MIN = 64  # descriptors that connections leave: log, hours, queues, runs, keys
FILES_RESERVE_MAX = 4_096  # of a large broker; it may use what connections do not
ADDRESS_SHARE = 75  # percent of connections, polls and bytes that clients of one address may take
LINK_BYTES_UNDER_WAY_MAX = 16 * MIB  # the same of one connection; above it nothing is read from it
LINK_REQUESTS_MAX = 4_096  # of one connection, but for polls: a quarter of what waits for a turn
BYTES_UNDER_WAY_MAX = 64 * MIB  # of requests without an answer; above it nothing is read
REPLIES_BYTES_MAX = 64 * MIB  # of replies of 4.x clients until their askers have taken them
UNFINISHED_BYTES_MAX = (
    256 * MIB
)  # of requests that have come in part; then who adds to them is cut off
UNFINISHED_SMALL = 8 * KIB  # always has room: at most 160 MiB on all connections
UNFINISHED_FRAME_MS = MINUTE_MS  # for one request to come; the largest, through a slow tunnel
KV_BYTES_MAX = MIB  # of the name server's table of values: it is written whole
UNTAKEN_BYTES_MAX = 16 * MIB  # of answers that a 4.x client has not read; then it gets no more
UNTAKEN_SMALL = 4 * KIB  # an answer that always has room: LINK_REQUESTS_MAX of them are 16 MiB
UNTAKEN_ALL_BYTES_MAX = (
    256 * MIB
)  # on all connections; then who has not read its own gets no more, and at twice that nobody
UNTAKEN_STUCK_MS = 10 * SECOND_MS  # then who has read nothing for so long is cut off
ANSWER_BYTES_MAX = (
    8 * MIB
)  # of messages in the answer to a 4.x pop or query; one more if they are less.  Clients read 16 MiB
SHAPES_MAX = 8  # that are kept of a connection's messages: few producers have more
SHAPE_NAMES_MAX = 32  # properties of a shape, and
SHAPE_TEXT_MAX = 4 * KIB  # bytes of what is read by one; what is longer has no need of speed
REMARK_MAX = 4 * KIB  # characters of what an answer to a 4.x client says of a failure
ACKS_PER_REQUEST_MAX = 4_096  # messages in one acknowledgement of a pop consumer: about 10 ms
PULL_BYTES_MAX = 512 * KIB  # of messages in the answer to a 4.x pull; more only with one message
SUBSCRIPTIONS_BYTES_MAX = 64 * MIB  # of all that 4.x consumers tell that they want
NOTIFIED_AT_ONCE = 1_000  # members of changed groups that are told in one go: some 10 ms
NOTIFY_MS = 100  # a group that changes more often tells its members so often
PULLED_QUEUES_MAX = (
    65_536  # of which it is remembered how far a 4.x group has pulled them; some 10 MB
)
RESET_QUEUES_MAX = 65_536  # whose reset 4.x pull consumers are still to be told; some 10 MB
QUEUE_LOCKS_MAX = 65_536  # of all orderly 4.x consumers; more are not granted
QUEUE_LOCK_MS = MINUTE_MS  # of an orderly 4.x consumer, which asks again every 20 s
REMOTING_CLIENT_EXPIRY_MS = 2 * MINUTE_MS  # four missed heartbeats of a 4.x client
REMOTING_IDLE_MS = (
    2 * MINUTE_MS
)  # a 4.x connection: as official brokers; heartbeats come every 30 s

# --- access -----------------------------------------------------------------------------------
ACCESS_KEY_MAX = 128  # bytes of the name of an identity
ACCESS_SECRET_MIN = 8  # characters of a secret or a token: shorter ones can be tried out

# --- the log ----------------------------------------------------------------------------------
SEGMENT_BYTES = 256 * MIB
RETENTION_BYTES_MAX = 10**15  # a petabyte; more is a typing error, and 0 says no bound
FRAME_BYTES_MAX = 1 * MIB  # or one atomic unit
MARK_IDLE_MS = 100  # an idle log states its durable position this long after the last group
FLUSH_INTERVAL_MS = 500  # `flush = interval`
CHECKPOINT_INTERVAL_MS = 10 * SECOND_MS
CHECKPOINT_LOG_BYTES = 64 * MIB  # so that the tail to replay stays short under load
CHECKPOINTS_KEPT = 2
FINISHED_HOURS_MAX = 64  # while simulated time flies; then a checkpoint lets them go
FRAME_INDEX_BLOCK = 64 * KIB  # one frame-index slot per block of a segment
FRAMES_OPEN_BYTES = 4 * MIB  # of bodies kept in memory: what was handed over is received soon
FRAMES_OPEN_MAX = 4_096  # the same bound for small frames
FRAMES_AHEAD_BYTES = 64 * KIB  # read at once where small frames are read one after another
DAMAGED_FRAMES_MAX = 65_536  # remembered, so that each is told once and not read again
SECTORS_LOST_MAX = 64  # of the log that cannot be read, and it goes on without; of a disk with more nothing is believed
HOLES_READ_MAX = 256  # of one search by store time: some 20 ms
HOLES_REPORTED_MAX = 65_536  # queue offsets that cannot be read, each named once
QUEUE_SEARCH_UNITS = (
    4_096  # damaged units of a queue in a row whose messages are searched for in the log
)
QUEUE_SEARCH_BYTES = 64 * MIB  # of log between their sound neighbours: some 50 ms, once

# --- the far store (docs/decisions/0009-runs.md has the measurements) ---------------------------
FAR_BUFFER_BYTES = 128 * MIB  # of records; then they become a run
FAR_BUFFER_BYTES_MIN = 64 * KIB
FAR_BUFFER_BYTES_MAX = 128 * MIB  # memory of a buffer: 9 bytes a message
RUNS_MAX = 32  # runs from buffers; above it they are merged into days and months
PART_RUNS_MAX = 8  # runs of one day or month; above it they become one
RUNS_OPEN_MAX = 128  # run files mapped at a time, or a quarter of the reserve of descriptors

# --- adoptions --------------------------------------------------------------------------------
ADOPTION_APP_MAX = 200  # bytes; ours: it stands in every ADOPT record and in the checkpoint
ADOPTION_APPS_MAX = 10_000  # whose highest version is remembered; then the oldest are forgotten
ADOPTION_FINGERPRINT_MAX = 255  # bytes; it stands in every ADOPT record and in the checkpoint
ADOPTION_FILES_MAX = 4_096  # of one transaction: its record is one frame
ADOPTION_INLINE_BYTES = 8 * MIB  # a smaller transaction goes into the log, and leaves no files
ADOPTION_PIECE_MAX = 8 * MIB  # bytes of a file in one request of the admin API
STAGING_TTL_MS = DAY_MS  # a transaction that is not committed by then is swept

# --- the lake -----------------------------------------------------------------------------------
OFFLOAD_MARGIN_MS = 24 * HOUR_MS  # what is due earlier stays: it would come back at once
LAKE_MARGIN_MS = 3 * HOUR_MS  # between a commit and the first due time that it takes away
OFFLOAD_HOURS_MAX = 1_000_000  # hours times topics of one offload: 24 bytes each in its record
LAKE_GONE_MAX = 1_000_000  # recalls in the lake that are remembered: 32 bytes each in memory
LAKE_RECALL_ROWS = 4_096  # that a bulk recall names in one step
PROMOTE_AHEAD_MS = 2 * HOUR_MS  # an hour is promoted this long before it begins
PROMOTE_LATE_MS = 30 * MINUTE_MS  # if it is not, the broker does it itself

# --- disk -------------------------------------------------------------------------------------
CONTROL_RESERVE_BYTES = 64 * MIB  # kept for acks, recalls, hand-over and one checkpoint
RETENTION_MS = (
    72 * HOUR_MS
)  # of the log, unless a setting says otherwise: RocketMQ's fileReservedTime
HOUR_KEEP_MS = (
    3 * HOUR_MS
)  # a finished hour stays this long, so that a late recall is told the truth
QUEUE_FILE_UNITS = 262_144  # 20-byte units per consume queue file: 5 MiB
QUEUE_FILES_OPEN_MAX = 1_024  # of all queues, or half of the reserve of descriptors
REPAIR_ROWS_MAX = (
    1_024  # damaged index entries that are rebuilt at once: 0.5 s in an hour of a million messages
)
REPAIR_SEARCH_BYTES = (
    64 * MIB
)  # of log between the sound neighbours of damaged entries: some 50 ms, once
PROBLEMS_MAX = 200  # sentences in health and in every checkpoint; what is found beyond is counted
PROBLEM_KEEP_MS = DAY_MS  # a loss stays in health at least this long, so that somebody sees it
PROBLEM_TEXT_MAX = 1_000  # characters of one of them
BACKUP_DAMAGE_MAX = 200  # stretches of a data directory that a manifest names as damaged

# --- admin API --------------------------------------------------------------------------------
ADMIN_CONNECTIONS_MAX = 1_024  # or half of the reserve of descriptors; then who sends nothing goes
ADMIN_BODY_S = 30  # for one body to come; the largest, through a slow tunnel
ADMIN_SMALL_BODY = 64 * KIB  # always has room: at most 64 MiB on all connections
ADMIN_BODIES_BYTES = 256 * MIB  # of larger ones that have come in part: 32 pieces of an adoption
ADMIN_UNTAKEN_BYTES_MAX = 64 * MIB  # of answers that nobody has read; then large ones are refused
ADMIN_READS_AT_ONCE = 4  # bulk reads whose answers are made; others wait for them
ADMIN_REQUEST_MAX = (
    26 * MIB
)  # the largest body as JSON, where a byte may be written as six characters
ADMIN_LIST_MAX = 1_000  # pending messages in one answer; clients page with `from`
HISTOGRAM_ROWS = 10_000  # of GET /v1/pending/histogram: a year by hour, a week by minute
SHARED_ANSWERS = 64  # kept for a second, for others who ask the same; the largest has 250 kB
HOT_SECONDS = 10  # in GET /v1/overview: the fullest of this hour and the next
OVERVIEW_TOPICS = 50  # with the most pending, in GET /v1/overview, which is asked every second
SEARCH_TURNS = 64  # of the core that one page of a search takes; then it says where to go on
REDRIVE_MAX = 100_000  # dead letters re-driven by one request: about a second; clients go on
REDRIVE_RATE_MAX = 1_000_000  # messages a second; more is as good as all at once
REDRIVE_REFUSALS_TOLD = 100  # of one request, whole; the others are counted
ADMIN_READ_MAX = 65_536  # messages in one answer of a bulk read
ADMIN_READ_BYTES = 16 * MIB  # of their records; an answer is made in memory
