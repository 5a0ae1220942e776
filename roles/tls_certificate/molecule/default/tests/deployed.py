"""What the scenarios of this role ask of the node."""

import os
from pathlib import Path

AUTHORITY = Path(os.environ["MOLECULE_EPHEMERAL_DIRECTORY"]) / ".secrets/tls_authority.pem"
FOLDER = "/etc/plumbline/tls"
COPY = f"{FOLDER}/authority.pem"


def serial(host) -> str:
    return host.check_output(f"openssl x509 -noout -serial -in {FOLDER}/host.crt")
