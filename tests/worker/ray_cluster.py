"""A Ray cluster of two nodes in a process of its own: it prints its address, and loses its second node when told so.

Only the second node has the resource `second`. Not on 127.0.0.1, which Ray replaces by the machine's own address.
"""

import sys
from typing import Any

from ray.cluster_utils import Cluster

NODE: dict[str, Any] = {
    "node_ip_address": "127.0.0.2",
    "object_store_memory": 80 * 1024 * 1024,
    "include_dashboard": False,
    "num_cpus": 2,
}


def main() -> None:
    """Be the cluster."""
    cluster = Cluster(initialize_head=True, head_node_args=NODE)
    second = cluster.add_node(resources={"second": 1}, **NODE)
    print(cluster.address, flush=True)
    for _ in sys.stdin:  # until the test hangs up
        cluster.remove_node(second, allow_graceful=False)
        print("done", flush=True)
    cluster.shutdown()


if __name__ == "__main__":
    main()
