"""The declaration of 300 nodes at one address, as JSON: python3 nodes.py ADDRESS."""

import json
import sys

COUNT = 300


def node(number: int, address: str) -> dict[str, object]:
    return {
        "name": f"e{number:03}",
        "address": address,
        "cpus": {"sockets": 1, "cores_per_socket": 1, "threads_per_core": 1},
        "memory_mb": 512,
        "gpus": {"model": "virtual", "count": 2},
        "options": {"Port": 17000 + number},
    }


if __name__ == "__main__":
    print(json.dumps([node(number, sys.argv[1]) for number in range(1, COUNT + 1)]))
