"""In a checkout: python -m validation.node_health VERB; on a node: plumbline-health VERB."""

import sys

from validation.node_health.main import main

if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
