"""Translate many files with many workers: each file is a shard, complete or absent.

plan       list shards, find the finished shards, check that a directory belongs to the job
shards     translate a shard into a shard
workers    run shards in Ray actors
"""
