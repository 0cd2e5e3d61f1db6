"""The durable log: a single one per daemon, append-only, in segments.

**The promise of a confirm.** `append_message` only buffers. A batch is committed when the batch before it is
durable, so batches grow by themselves while the disk is busy. When `fdatasync` has returned for the batch
(and `fsync` for the folder, if the file is new), the batch is *durable*, and its waiters are notified. From
then on recovery restores every message in the batch after any crash, once per queue that has not settled it,
in the order of publishing. Settles are in the same batches, but no client waits for them: a message whose
settle was not durable yet is delivered again, marked redelivered. Recovery never restores a message that was
not published, or that was settled durably.

**Parts.** `log.Log` composes the parts of the log, which share `state.LogState`. `group_commit.GroupCommit`
submits batches to the port `commit.BatchStorage`. `file_commit.FileStorage` is the storage in files. All
other modules either belong to the log above the port, or to the files below the port.

**Sync.** A sync never runs on the event loop: a small helper process (`sync_helper`) syncs, and the loop
reads its answer from a socket. At most one sync is in flight. A sync is never retried: after a failed sync,
or if the helper dies, the state of the disk is unknown. So the log stops, and publishes are refused until the
next start.

**A full disk.** The batch that did not fit is cut off, and its publishers are notified. Settles continue in a
reserve that was preallocated for this, so that consumers make room; see `Log` for the way back to publishing.

**A torn tail.** Since at most one batch is ever unsynced, a crash can damage only the end of the newest file,
and nothing there was ever confirmed: recovery cuts the end off and reports it. An invalid stretch with a
valid batch behind it, or a file that is shorter than in the newest checkpoint, is damage to synced data. Then
the daemon refuses to start and names file and offset. `amqpd check` reports how much would be lost. `amqpd
check --repair` copies everything that is still readable forward, keeps the damaged file aside, and loses the
rest.

**Space.** Every segment begins with a checkpoint of the definitions and of the existing segments, so recovery
reads only these segments. A segment whose messages are all settled is removed once no older segment needs its
settle records. A segment that is mostly dead is copied forward first. The file is used for the next segment,
or deleted. See `segment.Segment`, `segment_files.SegmentFiles` and `space.Space`.

**Streams.** The rows of streams are in chunks in separate files. The chunks are written before the batch with
which they were appended, and synced in the same round. The batch records how far each stream goes with it,
and a last batch whose chunks are not whole counts as torn. So a batch and its rows are durable together.
Whole files are removed from a stream's beginning, once a batch that records this is durable. `amqpd check`
reads every chunk. A repair drops the rows of damaged chunks, writes chunks in their places that mark the
loss, and leaves all other rows with their offsets. See `streams.stream.Streams`, `streams.files.StreamFiles`
and `repair.streams`.

**Cost.** `Log.append_message` and `append_settle` only write into one buffer. The CRC, the write and all work
for space happen once per batch.

Nothing here imports asyncio or starts a thread. Files are reached only through `disk.Disk`, and blocking
calls only through `sync.Syncer`, so that tests can crash a simulated machine at any instant.
"""
