"""Stand-in for Grafana's package: names, places and scripts as its own, the program is ours."""

from __future__ import annotations

from pathlib import Path

from tests.standins.mirror import Deb

PROGRAM = Path(__file__).with_name("program.py")

# As the package's own: it waits for nothing, and logs where it is told.
UNIT = """[Unit]
Description=Stand-in for Grafana
Wants=network-online.target
After=network-online.target

[Service]
EnvironmentFile=/etc/default/grafana-server
User=grafana
Group=grafana
Type=simple
Restart=on-failure
WorkingDirectory=/usr/share/grafana
RuntimeDirectory=grafana
RuntimeDirectoryMode=0750
ExecStart=/usr/share/grafana/bin/grafana server --config=${CONF_FILE} \\
    --pidfile=/run/grafana/grafana-server.pid --packaging=deb cfg:default.paths.logs=${LOG_DIR} \\
    cfg:default.paths.data=${DATA_DIR} cfg:default.paths.plugins=${PLUGINS_DIR} \\
    cfg:default.paths.provisioning=${PROVISIONING_CFG_DIR}
NoNewPrivileges=true
PrivateTmp=true
ProtectHome=true
ProtectSystem=full
UMask=0027

[Install]
WantedBy=multi-user.target
"""
DEFAULT = """LOG_DIR=/var/log/grafana
DATA_DIR=/var/lib/grafana
CONF_FILE=/etc/grafana/grafana.ini
PLUGINS_DIR=/var/lib/grafana/plugins
PROVISIONING_CFG_DIR=/etc/grafana/provisioning
"""
# At each upgrade it gives away what is in its folders, and modes to what is in /etc/grafana.
POSTINST = """#!/bin/sh
set -e
[ "$1" = configure ] || exit 0
getent group grafana >/dev/null || groupadd --system grafana
id grafana >/dev/null 2>&1 || useradd --system --home-dir /usr/share/grafana --no-create-home \\
    --gid grafana --shell /bin/false grafana
mkdir -p /var/log/grafana /var/lib/grafana
chown -R grafana:grafana /var/log/grafana /var/lib/grafana
chmod 755 /var/log/grafana /var/lib/grafana
[ -f /etc/grafana/grafana.ini ] || cp /usr/share/grafana/conf/sample.ini /etc/grafana/grafana.ini
if [ ! -d /etc/grafana/provisioning ]; then
    mkdir -p /etc/grafana/provisioning/dashboards /etc/grafana/provisioning/datasources
    for kind in dashboards datasources; do
        echo "# apiVersion: 1" >/etc/grafana/provisioning/$kind/sample.yaml
    done
fi
chown -Rh root:grafana /etc/grafana/*
chmod 755 /etc/grafana
find /etc/grafana -type f -exec chmod 640 {} ';'
find /etc/grafana -type d -exec chmod 755 {} ';'
# Not through what forbids daemons to start.
if [ -n "$2" ] && [ -d /run/systemd/system ]; then
    systemctl daemon-reload
    systemctl restart grafana-server || true
fi
"""


def grafana(version: str) -> Deb:
    return Deb(
        "grafana",
        version,
        depends=("passwd", "python3", "python3-yaml"),
        files={
            "/usr/share/grafana/bin/grafana": PROGRAM.read_text(encoding="utf-8"),
            "/usr/share/grafana/VERSION": f"{version}\n",
            "/usr/share/grafana/conf/sample.ini": ";http_port = 3000\n",
            "/etc/grafana/ldap.toml": "# of the package\n",
            "/etc/default/grafana-server": DEFAULT,
            "/usr/lib/systemd/system/grafana-server.service": UNIT,
        },
        scripts={"postinst": POSTINST},
    )
