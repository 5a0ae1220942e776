"""What the scenarios of this role have in common: questions to Grafana as its administrator."""

from tests.web_listener import SECRETS, Answer, Listener

INI = "/etc/grafana/grafana.ini"
SERVICE = "grafana-server"


class Grafana(Listener):
    def ask(self, path: str, **options) -> Answer:
        if options.get("user", "admin") == "admin" and options.get("word") is None:
            options["word"] = (SECRETS / "grafana_admin_password").read_text().strip()
        return super().ask(path, **{"user": "admin"} | options)


def started(host) -> str:
    return host.check_output(f"systemctl show {SERVICE} --property=ActiveEnterTimestampMonotonic")
