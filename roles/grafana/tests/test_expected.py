"""The list of what has no data, and how it is held against a Prometheus."""

import contextlib
import json
import re
import ssl
import threading
from collections.abc import Iterator
from datetime import UTC, datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
import yaml
from cryptography import x509
from cryptography.hazmat.primitives import hashes

from cluster import prometheus
from roles.grafana.page import boards, expected
from roles.grafana.page.expected import ExpectedQuery, Reason
from roles.tls_certificate.plugin_utils import certificates

ASKED = [*expected.of_panels(boards.own(), 3600), *expected.of_alerts()]
LISTED = expected.read()


def test_what_is_listed_is_asked():
    assert expected.stale(LISTED, ASKED) == []
    gone = {("panel", "GPU fleet", "Gone"): Reason("gpu", "")}
    assert expected.stale(gone, ASKED) == ["panel/GPU fleet/Gone"]


def test_each_reason_is_given_for_something():
    named = yaml.safe_load(expected.FILE.read_text(encoding="utf-8"))["reasons"]
    assert set(named) == {reason.name for reason in LISTED.values()}


def test_every_query_that_needs_a_gpu_is_listed_unless_it_counts_from_zero():
    for query in ASKED:
        if re.search(r"DCGM_|:dcgm_", query.expr) and "vector(0)" not in query.expr:
            assert expected.why(LISTED, query), query.name


def test_names_are_there_once():
    names = [query.name for query in ASKED]
    assert len(names) == len(set(names)) > 200


def test_an_alert_is_asked_for_all_that_it_looks_at():
    exprs = [query.expr for query in ASKED if query.place[0] == "SlurmSchedulerStalled"]
    assert exprs == ["slurm_schedule_cycle_cnt", "slurm_jobs_pending", "slurm_jobs_hold"]
    alerts = {query.place[0] for query in ASKED if query.kind == "alert"}
    assert len(alerts) > 45


# --- the judgement -------------------------------------------------------------------------------

PLAIN = ExpectedQuery("panel", ("Board", "Plain"), "A", "up")
OF_GPU = ExpectedQuery("panel", ("Board", "Of a GPU"), "A", "gpu")
OF_FAULT = ExpectedQuery("alert", ("Board", "fault"), "1", "fault")
SOME = {
    ("panel", "Board", "Of a GPU"): Reason("gpu", "No GPU."),
    ("alert", "Board", "fault"): Reason("fault", "No fault.", sometimes=True),
}


@pytest.mark.parametrize(
    ("query", "answers", "lacking", "sentence"),
    [
        (PLAIN, True, {"gpu"}, ""),
        (PLAIN, False, {"gpu"}, "panel/Board/Plain/A has no data: up"),
        (OF_GPU, False, {"gpu"}, ""),
        (OF_GPU, True, {"gpu"}, f"{OF_GPU.name} has data, and is listed as without (gpu): gpu"),
        (OF_GPU, True, set(), ""),
        (OF_GPU, False, set(), f"{OF_GPU.name} has no data: gpu"),
        (OF_FAULT, True, set(), ""),
        (OF_FAULT, False, set(), ""),
    ],
)
def test_data_is_there_where_it_should_be_and_nowhere_else(query, answers, lacking, sentence):
    assert expected.judge(query, answers, SOME, lacking) == sentence


def test_one_query_of_a_panel_can_be_listed():
    both = SOME | {("panel", "Board", "Plain/B"): Reason("job", "No job.")}
    second = ExpectedQuery("panel", ("Board", "Plain"), "B", "up")
    assert expected.why(both, PLAIN) is None
    assert expected.why(both, second) == Reason("job", "No job.")


@pytest.mark.parametrize(
    "text",
    [
        "{reasons: {a: {why: A.}}, panels: {b: {Board: [Panel]}}, alerts: {}}",
        "{reasons: {a: {why: A.}, b: {why: B.}}, panels: {a: {P: [Q]}, b: {P: [Q]}}, alerts: {}}",
    ],
)
def test_a_list_that_contradicts_itself_is_refused(text, tmp_path):
    file = tmp_path / "list.yml"
    file.write_text(text)
    with pytest.raises(ValueError, match="there twice, or without a reason"):
        expected.read(file)


# --- Prometheus' answers -----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("document", "count"),
    [
        ({"resultType": "vector", "result": []}, 0),
        ({"resultType": "vector", "result": [{"metric": {}, "value": [1, "NaN"]}]}, 0),
        ({"resultType": "vector", "result": [{"metric": {}, "value": [1, "0"]}]}, 1),
        ({"resultType": "scalar", "result": [1, "2"]}, 1),
        ({"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "+Inf"]]}]}, 0),
        ({"resultType": "matrix", "result": [{"metric": {}, "values": [[1, "1"], [2, "NaN"]]}]}, 1),
    ],
)
def test_only_numbers_are_data(document, count):
    assert len(prometheus.parse({"status": "success", "data": document})) == count


@pytest.mark.parametrize(
    ("document", "why"),
    [
        ({"status": "error", "error": "parse error"}, "Prometheus answers: parse error."),
        ({"status": "success", "data": {"resultType": "vector"}}, "is not understood"),
        ({}, "is not understood"),
        ([], "is not understood"),
    ],
)
def test_what_is_no_answer_is_one_sentence(document, why):
    with pytest.raises(prometheus.NoAnswer, match=why):
        prometheus.parse(document)


class Guarded(BaseHTTPRequestHandler):
    def do_POST(self):
        self.rfile.read(int(self.headers["Content-Length"]))
        known = self.headers.get("Authorization") == "Basic Z3JhZmFuYTpzZWNyZXQ="
        answer = {"status": "success", "data": {"resultType": "scalar", "result": [1, "2"]}}
        text = json.dumps(answer).encode() if known else b"Unauthorized"
        self.send_response(200 if known else 401)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, *arguments):
        pass


@contextlib.contextmanager
def serving(certificate: Path | None = None) -> Iterator[str]:
    with HTTPServer(("127.0.0.1", 0), Guarded) as server:
        if certificate is not None:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate)
            server.socket = context.wrap_socket(server.socket, server_side=True)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            scheme = "https" if certificate else "http"
            yield f"{scheme}://127.0.0.1:{server.server_address[1]}"
        finally:
            server.shutdown()
            thread.join()


@pytest.fixture
def password(tmp_path) -> Path:
    file = Path(tmp_path / "password")
    file.write_text("secret\n")
    return file


def test_the_password_is_sent_and_a_refusal_is_told(password):
    with serving() as url:
        known = prometheus.Server(url, user="grafana", password=password)
        assert prometheus.now(known, "2", 1)[0].last == 2
        with pytest.raises(prometheus.NoAnswer, match="answers with 401"):
            prometheus.now(prometheus.Server(url), "2", 1)
    with pytest.raises(prometheus.NoAnswer, match="does not answer"):
        prometheus.now(known, "2", 1)


def certificate(file: Path) -> Path:
    """For 127.0.0.1, with its key and the authority that signed it."""
    now, key = datetime.now(UTC), certificates.new_key()
    authority = certificates.new_authority(file.stem, now, 1)
    request = x509.CertificateSigningRequestBuilder(x509.Name([])).sign(key, hashes.SHA256())
    server = certificates.Server((), ("127.0.0.1",))
    pem = certificates.signed(request, server, authority, now, 1)
    file.write_text(pem + certificates.key_pem(key) + authority.pem)
    return file


def test_only_the_given_authority_is_believed(password, tmp_path):
    ours, theirs = certificate(tmp_path / "ours.pem"), certificate(tmp_path / "theirs.pem")
    with serving(ours) as url:
        known = prometheus.Server(url, ours, "grafana", password)
        assert prometheus.now(known, "2", 1)[0].last == 2
        for other in (theirs, None):
            stranger = prometheus.Server(url, other, "grafana", password)
            with pytest.raises(prometheus.NoAnswer, match="certificate verify failed"):
                prometheus.now(stranger, "2", 1)


def test_a_file_that_is_not_there_is_named(password, tmp_path):
    gone = tmp_path / "gone"
    for server in (
        prometheus.Server("https://127.0.0.1:1", gone),
        prometheus.Server("http://127.0.0.1:1", None, "grafana", gone),
    ):
        with pytest.raises(prometheus.NoAnswer, match=rf"^{gone} cannot be .*No such file"):
            prometheus.now(server, "2", 1)
    with pytest.raises(prometheus.NoAnswer, match=r"password cannot be used: .*certificate"):
        prometheus.now(prometheus.Server("https://127.0.0.1:1", password), "2", 1)
