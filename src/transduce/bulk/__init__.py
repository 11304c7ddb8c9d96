"""Translation of many files, by many workers: each file is a shard, complete or absent.

plan       which shards there are, which are done, and whether a directory belongs to the work
shards     one shard in, one shard out: all that a worker does
workers    Ray's actors, which do so
"""
