"""What users may ask for, and the sentence for what they may not."""

from __future__ import annotations

import dataclasses

import pytest

from roles.jupyterhub.files.portal.cluster_now import Association, Cluster, Gpus, Partition, Qos
from roles.jupyterhub.files.portal.request import (
    Container,
    Refused,
    Request,
    Site,
    check,
    of_form,
)

GPU = Partition(
    "gpu", True, ("gpu1", "gpu2"), 1, 64, 100, 512_000, 1440, (Gpus("h100", 8, 5, 16, 4),)
)
UNTYPED = Gpus("", 8, 5, 16, 4)
MIXED = dataclasses.replace(
    GPU, name="mixed", default=False, gpus=(Gpus("1g.10gb", 7, 1, 7, 1), Gpus("h100", 1, 1, 1, 1))
)
CPU = dataclasses.replace(GPU, name="cpu", default=False, gpus=())
CLUSTER = Cluster(
    (GPU, CPU, MIXED),
    (
        Association("physics", "", ("normal", "urgent"), "normal"),
        Association("art", "", ("normal",), "", limit=30, gpus=1),
    ),
    "physics",
    {"normal": Qos("normal"), "urgent": Qos("urgent", 60, 2)},
)
SITE = Site(containers=(Container("PyTorch", "/images/pytorch.sqsh"),))


def ask(site: Site = SITE, cluster: Cluster = CLUSTER, /, **fields: str) -> Request:
    return of_form({name: [text] for name, text in fields.items()}, cluster, site)


def test_a_form_without_words_is_the_sites_usual_notebook() -> None:
    assert ask() == Request("gpu", "", 0, 2, 4096, 120)


def test_options_of_sbatch() -> None:
    request = ask(
        partition="gpu",
        gpus="2",
        gpu_type="h100",
        cpus="8",
        memory="32",
        time="1:30",
        account="physics",
        qos="normal",
    )
    assert request.arguments == (
        "--partition=gpu",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=8",
        "--mem=32768M",
        "--time=90",
        "--gres=gpu:h100:2",
        "--account=physics",
        "--qos=normal",
    )
    bare = dataclasses.replace(CLUSTER, partitions=(dataclasses.replace(GPU, gpus=(UNTYPED,)),))
    assert ask(SITE, bare, gpus="1").arguments == (
        "--partition=gpu",
        "--nodes=1",
        "--ntasks=1",
        "--cpus-per-task=2",
        "--mem=4096M",
        "--time=120",
        "--gres=gpu:1",
    )


def test_no_gpu_is_asked_for_by_no_option() -> None:
    assert not [word for word in ask(gpu_type="h100").arguments if "gres" in word]


def test_the_only_type_need_not_be_named() -> None:
    assert ask(gpus="1").gpu_type == "h100"


@pytest.mark.parametrize(
    ("fields", "sentence"),
    [
        ({"partition": "nowhere"}, "no partition “nowhere” for you; there are: gpu, cpu, mixed."),
        ({"gpus": "9"}, "no node of gpu has more than 8 GPUs of the type h100; you asked for 9."),
        ({"gpus": "1", "gpu_type": "b200"}, "no GPU of the type “b200”; it has: h100."),
        ({"partition": "mixed", "gpus": "1"}, "no GPU of the type “”; it has: 1g.10gb, h100."),
        ({"partition": "cpu", "gpus": "1"}, "The partition cpu has no GPUs; choose 0 GPUs"),
        ({"gpus": "two"}, "The number of GPUs is “two”; give a whole number."),
        ({"gpus": "1234567890"}, "The number of GPUs is “1234567890”; give a whole number."),
        ({"memory": "9" * 60}, f"The memory in GiB is “{'9' * 40}”; give a whole number."),
        ({"gpus": "-1"}, "The number of GPUs is “-1”; give a whole number."),
        ({"gpus": "²"}, "give a whole number."),
        ({"time": "soon"}, "The time is “soon”; give hours and minutes, such as 2:00."),
        ({"time": "1:xx"}, "The time is “1:xx”; give hours and minutes"),
        ({"time": "10000:00"}, "The time is “10000:00”; give hours and minutes"),
        ({"time": "9999:00"}, "allows 1440 minutes; you asked for 599940."),
        ({"time": "x" * 60}, f"The time is “{'x' * 40}”; give hours"),
        ({"partition": "x" * 90}, f"no partition “{'x' * 60}” for you"),
        ({"gpus": "1", "gpu_type": "x" * 90}, f"of the type “{'x' * 60}”; it has"),
        ({"account": "x" * 90}, f"You have no account “{'x' * 60}”; you have"),
        ({"account": "art", "time": "0:20", "qos": "x" * 90}, f"QOS “{'x' * 60}”; it has: normal."),
        ({"container": "x" * 90}, f"no container image “{'x' * 60}” in the list."),
        ({"time": "25:00"}, "The partition gpu allows 1440 minutes; you asked for 1500."),
        ({"time": "0"}, "at least one CPU, some memory and one minute."),
        ({"cpus": "0"}, "at least one CPU"),
        ({"cpus": "65"}, "The largest node allows 64 CPUs; you asked for 65. Choose fewer CPUs."),
        ({"memory": "501"}, "The largest node allows 512000 MiB"),
        ({"account": "music"}, "You have no account “music”; you have: physics, art."),
        ({"account": "art", "time": "1:00"}, "Your account art allows 30 minutes"),
        ({"account": "art", "time": "0:20", "gpus": "2"}, "Your account art allows 1 GPUs"),
        ({"account": "art", "time": "0:20", "qos": "urgent"}, "account art has no QOS “urgent”"),
        ({"qos": "urgent", "time": "2:00"}, "The QOS urgent allows 60 minutes"),
        ({"qos": "urgent", "time": "0:30", "gpus": "3"}, "The QOS urgent allows 2 GPUs"),
        ({"container": "/etc/passwd"}, "no container image “/etc/passwd” in the list."),
    ],
)
def test_what_cannot_be_had_is_a_sentence(fields: dict[str, str], sentence: str) -> None:
    with pytest.raises(Refused) as refused:
        ask(**fields)
    assert sentence in str(refused.value)


@pytest.mark.parametrize(
    ("fields", "request_"),
    [
        ({"gpus": "8", "gpu_type": "h100"}, Request("gpu", "h100", 8, 2, 4096, 120)),
        ({"time": "24"}, Request("gpu", "", 0, 2, 4096, 1440)),
        ({"time": "24:00"}, Request("gpu", "", 0, 2, 4096, 1440)),
        ({"cpus": "64", "memory": "500"}, Request("gpu", "", 0, 64, 512000, 120)),
        (
            {"account": "art", "gpus": "1", "gpu_type": "h100", "time": "0:30"},
            Request("gpu", "h100", 1, 2, 4096, 30, "art"),
        ),
    ],
)
def test_all_that_is_allowed_can_be_had(fields: dict[str, str], request_: Request) -> None:
    assert ask(**fields) == request_


def test_the_first_partition_is_the_usual_one_and_there_may_be_none() -> None:
    with pytest.raises(Refused, match="There is no partition “” for you; there are: none"):
        ask(SITE, Cluster())
    assert of_form({"gpus": []}, CLUSTER, SITE).gpus == 0


def test_an_account_without_a_qos_has_none() -> None:
    cluster = dataclasses.replace(
        CLUSTER, associations=(Association("physics", "", (), ""),), qos={}
    )
    with pytest.raises(Refused, match="The account physics has no QOS “x”; it has: none"):
        ask(SITE, cluster, qos="x")


def test_the_limits_of_the_site() -> None:
    with pytest.raises(Refused, match="This site, for notebooks, allows 1 GPUs"):
        ask(Site(most_gpus=1), gpus="2")
    with pytest.raises(Refused, match="This site, for notebooks, allows 60 minutes"):
        ask(Site(most_minutes=60), time="1:01")
    with pytest.raises(Refused, match=r"there are: cpu\."):
        ask(Site(partitions=("cpu",)), partition="gpu")


def test_without_accounting_no_account_is_known_and_none_is_refused() -> None:
    bare = Cluster((GPU,))
    assert ask(SITE, bare, account="any").account == "any"


def test_nothing_is_submitted_while_something_is_not_known() -> None:
    broken = dataclasses.replace(
        CLUSTER, problems=("Slurm does not say which nodes there are (x)",)
    )
    with pytest.raises(Refused, match="does not say which nodes"):
        ask(SITE, broken)


def test_no_text_of_a_user_becomes_another_option() -> None:
    with pytest.raises(Refused):
        check(Request("gpu --uid=0", "", 0, 1, 1024, 10), CLUSTER, SITE)
    with pytest.raises(Refused):
        check(Request("gpu", "h100:1,license:all", 1, 1, 1024, 10), CLUSTER, SITE)


def test_what_the_role_writes_is_what_a_site_is() -> None:
    document = {
        "partitions": ["gpu"],
        "containers": [{"name": "PyTorch", "image": "/images/pytorch.sqsh"}],
        "most_minutes": 600,
        "most_gpus": 2,
        "usual_minutes": 60,
        "usual_cpus": 4,
        "usual_memory_mib": 8192,
    }
    site = Site.read(document)
    assert site.containers == SITE.containers
    assert site.most_gpus == 2
