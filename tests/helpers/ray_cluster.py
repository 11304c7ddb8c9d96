"""A cluster of Ray's with two nodes on this machine, in a process of its own.

python ray_cluster.py       prints the cluster's address; ends when stdin does
"""

from __future__ import annotations

import os
import sys

NODE = {"num_cpus": 1, "object_store_memory": 80 * 2**20, "include_dashboard": False}


def main() -> None:
    os.environ["RAY_USAGE_STATS_ENABLED"] = "0"
    from ray.cluster_utils import Cluster

    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    cluster.add_node(num_cpus=1, object_store_memory=80 * 2**20)
    cluster.wait_for_nodes()
    sys.stdout.write(f"{cluster.address}\n")
    sys.stdout.flush()
    sys.stdin.read()
    cluster.shutdown()


if __name__ == "__main__":
    main()
