"""Where a job lives: shard (ownership and log order), stripe (a writer's share), partition."""


def shard_of(job_id: bytes, shards: int) -> int:
    """Return the job's shard, in [0, shards). `shards` is fixed when Tocsin is installed."""
    return int.from_bytes(job_id[:4], "big") % shards


def stripe_of(shard: int, stripes: int) -> int:
    """Return the writer's share that a shard belongs to; two stripes share no shard."""
    return shard % stripes


def partition_of(shard: int, partitions: int) -> int:
    """Return the broker partition of a shard, so that its dispatcher stays in its own shards."""
    return shard % partitions
