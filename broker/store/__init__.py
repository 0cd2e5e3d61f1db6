"""The durable log: one per daemon, append-only, in segment files.

**What a confirm promises.** `append_message` only buffers. A batch is written when the batch before it has
been synced, so batches grow by themselves while the disk is busy; when `fdatasync` has returned for it (and
`fsync` for the folder, if the file is new), it is *durable*, and its waiters are told: from then on every
message in it comes back after any crash, once per queue that has not settled it, in the order of
publishing. Settles ride in the same batches and are not waited for: a message whose settle was not durable
yet is delivered again, marked redelivered. Nothing comes back that was never published, and nothing that
was settled durably.

**When sync runs.** Never on the event loop: a small helper process (`sync_helper`) does it, and the loop
reads its answer from a socket. One sync is in flight at most. It is never retried: after a failed one, or
if the helper dies, nobody knows what is on disk, so the log stops and publishes are refused until the next
start.

**A full disk.** The batch that did not fit is cut off and its publishers are told. Settles go on in a reserve
that was preallocated for this, so that consumers make room; see `Log` for how publishing comes back.

**What a torn tail means.** Since at most one batch is ever unsynced, a crash can damage only the end of the
newest file, and nothing there was ever confirmed: recovery cuts it off and reports it. An invalid stretch
with a valid batch behind it, or a file that is shorter than the newest checkpoint says, is damage to what
had been synced: the daemon refuses to start and names file and offset; `amqpd check` says what would be
lost, and `amqpd check --repair` copies everything that still reads forward, keeps the damaged file aside,
and loses the rest.

**Where space comes back.** Every segment begins with a checkpoint of the definitions and of the segments
that exist, so recovery reads only those. A segment whose messages are all settled is removed once no older
segment needs its settle records; one that is mostly dead is copied forward first. Its file is used for
the next segment, or deleted. See `segment.Segment`, `space.Space` and `files.Files`.

**Streams.** Their rows are in chunks in files of their own, which are written before the batch that they were
appended with and synced in the same round: the batch says how far each stream goes with it, and a last batch
whose chunks are not whole is taken for torn. So what a batch says and the rows of it are durable together.
Whole files go from a stream's beginning, once a batch that says so is durable. `amqpd check` reads every
chunk; a repair gives up the rows of damaged ones, puts chunks in their places that say so, and leaves all
other rows with the offsets that they have. See `streams.Streams`, `stream_files.StreamFiles` and
`stream_salvage`.

**Where the time goes.** `Log.append_message` and `append_settle` only write into one buffer. The CRC, the
write and everything about space happen once per batch.

Nothing here imports asyncio or starts a thread. Files are reached only through `disk.Disk`, and what blocks
only through `syncer.Syncer`, so that tests can crash a simulated machine at any instant.
"""
