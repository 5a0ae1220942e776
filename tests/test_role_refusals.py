"""What roles refuse by variables and facts alone, each sentence judged as preflight judges it.

On no host and without a run of Ansible: a refusal costs milliseconds here, and seconds of CPU in a
role's scenario, which keeps those that something on the node decides. That a role begins with
its refusals is one test for all roles.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from typing import Any

import pytest
import yaml
from ansible.template import trust_as_template

from playbooks.plugin_utils.refusing import Here, refusing
from playbooks.plugin_utils.site import Site
from playbooks.plugin_utils.values import Values
from tests.standins.inventories import REPOSITORY, good, worked_out, write

ROLES = REPOSITORY / "roles"
NAMES = sorted(path.name for path in ROLES.iterdir() if (path / "tasks/main.yml").is_file())
HOST = "gpu1"
FACTS = {
    "architecture": "x86_64",
    "os_family": "Debian",
    "distribution": "Debian",
    "distribution_major_version": "13",
    "distribution_release": "trixie",
    "distribution_version": "13.1",
    "memtotal_mb": 64000,
    "processor_vcpus": 16,
}

ON = {"firewall_enabled": True}

# What a site has to say itself.
SITE = {
    "enroot_sha256": {f"4.2.1-amd64-{name}": "0" * 64 for name in ("enroot", "enroot+caps")},
    "site_image_file": "/shared/images/validation.sqsh",
}


@pytest.fixture(scope="module")
def read(tmp_path_factory: pytest.TempPathFactory) -> Site:
    """A good site whose cluster is worked out, as it is when preflight comes to the roles."""
    folder = tmp_path_factory.mktemp("inventory")
    return worked_out(write(folder, good(), {"group_vars/all.yml": SITE}))[0]


def refusals(
    read: Site,
    role: str,
    variables: Mapping[str, Any],
    facts: Mapping[str, Any] | None = None,
    host: str = HOST,
) -> list[str]:
    """What the role refuses on a host of the site that has these variables and facts."""
    own = {**read.values.hosts[host], **variables, "ansible_facts": {**FACTS, **(facts or {})}}
    variant = dataclasses.replace(read, values=Values({host: own}, read.engine.render))
    here = Here({}, frozenset(), lambda action: False, lambda question, host: {})
    return list(refusing(variant, {host: [role]}, ROLES, here).sentences[host])


@pytest.mark.parametrize("role", NAMES)
def test_a_role_begins_with_what_it_refuses(role: str) -> None:
    """Whatever else it does; slurm-cluster.yml, which has asked it before, names another file."""
    tasks = yaml.safe_load((ROLES / role / "tasks/main.yml").read_text())
    assert tasks[0] == {
        "name": "Run the refuse phase",
        "ansible.builtin.import_tasks": "{{ __refuse | default('refuse.yml') }}",
        "tags": [role, "refuse"],
    }


@pytest.mark.parametrize("role", NAMES)
def test_a_good_site_is_refused_nothing(read: Site, role: str) -> None:
    """Or the refusals below would be of something else than their variables."""
    assert refusals(read, role, {}) == []


def modulefiles(*changes: dict[str, Any]) -> dict[str, Any]:
    tool = {"version": "3", "description": "A tool", "kind": "folder", "folder": "/x"}
    return {"environment_modules_modulefiles": [{"name": "tool"} | tool | own for own in changes]}


REST = {"slurmrestd_enabled": True}


def image(times: int = 1, root: str = "/shared/images", **changes: Any) -> dict[str, Any]:
    """Variables of the role container_images, with images that are good but for the changes."""
    words = {"licence": "MIT", "description": "A tool"}
    published = [{"name": "tool", "image": "site/tool:1", **words} | changes] * times
    return {"container_images_root": root, "container_images_published": published}


def dataset(of_file: dict[str, Any] | None = None, **changes: Any) -> dict[str, Any]:
    """Variables of the role datasets, with one version that is good but for the changes."""
    file = {"url": "https://example.org/iris.tar.gz", "sha256": "0" * 64} | (of_file or {})
    words = {"description": "Flowers", "source": "https://example.org", "licence": "CC0-1.0"}
    good_one = {"name": "iris", "version": "1", **words, "files": [file]}
    root = changes.pop("root", "/shared/datasets")
    others = changes.pop("others", [])
    more: dict[str, Any] = changes.pop("more", {})
    published = [good_one | changes, *({**good_one, **other} for other in others)]
    return {"datasets_root": root, "datasets_published": published} | more


def library(**changes: Any) -> dict[str, Any]:
    """Variables of the role user_libraries, with one version, whose lock file is this file."""
    good_one = {"name": "tools", "version": "1", "requirements": __file__}
    return {"user_libraries_published": [good_one | changes]}


@pytest.mark.parametrize(
    ("role", "variables", "words"),
    [
        ("alertmanager", {"alertmanager_routes": [{"receiver": "pager"}]}, "leads to pager"),
        (
            "backup",
            {"backup_recipients": ["AGE-SECRET-KEY-1QQQ"]},
            "backup_recipients has 1 of 1 that are no public keys",
        ),
        ("backup", {"backup_keep": 0}, "backup_keep is 0"),
        ("backup", {"backup_copy_command": ["/bin/cp", "x"]}, "has the word {archive}"),
        ("backup", {"backup_copy_command": ["cp", "{archive}"]}, "begins with the path"),
        ("container_images", image(root=""), "has 1 entries, and container_images_root is empty"),
        ("container_images", image(root="images"), "container_images_root is 'images'; give the"),
        (
            "container_images",
            image() | {"container_images_shared_filesystems": ["/lustre"]},
            "container_images_root is /shared/images, which is below none of the shared",
        ),
        ("container_images", image(name="My"), '[0].name is "My"; a name is made of small'),
        ("container_images", image(image="pytorch"), '[0].image is "pytorch"; give REGISTRY#'),
        ("container_images", image(image="x:1@sha256:0"), '[0].image is "x:1@sha256:0"'),
        (
            "container_images",
            image(image="nvcr.io/nvidia/pytorch:1"),
            "separate the registry with #, as enroot does: nvcr.io#nvidia/pytorch:1",
        ),
        ("container_images", image(licence=""), "[0] (tool) has no licence"),
        ("container_images", image(description=""), "[0] (tool) has no description"),
        ("container_images", image(digest="sha256:12"), "[0].digest is 'sha256:12'; give sha256:"),
        ("container_images", image(2), "tool/1.sqsh is 2 times in container_images_published"),
        ("datasets", dataset(root=""), "has 1 entries, and datasets_root is empty; set it"),
        ("datasets", dataset(root="shared"), "datasets_root is 'shared'; give the full path"),
        ("datasets", dataset(root="/shared/../etc"), "datasets_root is '/shared/../etc'"),
        (
            "datasets",
            dataset(more={"datasets_shared_filesystems": ["/lustre"]}),
            "datasets_root is /shared/datasets, which is on none of the shared filesystems",
        ),
        (
            "datasets",
            dataset(root="/lustre", more={"datasets_shared_filesystems": ["/lustre"]}),
            "datasets_root is /lustre, a whole shared filesystem",
        ),
        ("datasets", dataset(name="My Data"), '[0].name is "My Data"; a name is made of small'),
        ("datasets", dataset(name=".incoming"), '[0].name is ".incoming"'),
        ("datasets", dataset(version="../x"), '[0].version is "../x"'),
        ("datasets", dataset(version="README.md"), '[0].version is "README.md"'),
        ("datasets", dataset(version=1.1), "the number 1.1, which may not be what was written"),
        ("datasets", dataset(licence=""), "iris 1 has no licence; give its licence, such as"),
        ("datasets", dataset(source=" "), "iris 1 has no source"),
        ("datasets", dataset(description=""), "iris 1 has no description"),
        ("datasets", dataset(files=[]), "iris 1 has no files"),
        ("datasets", dataset(readers="a b"), "iris 1 has the readers 'a b'"),
        ("datasets", dataset({"url": "ftp://x/y"}), "has the address 'ftp://x/y'; give one of"),
        ("datasets", dataset({"url": "https://x/"}), "ends with no name of a file"),
        ("datasets", dataset({"url": "https://me:pw@x/y"}), "an address with a password in it"),
        ("datasets", dataset({"mirrors": ["x"]}), "has the address 'x'"),
        ("datasets", dataset({"sha256": "abc"}), "iris 1 has no SHA-256 of iris.tar.gz"),
        ("datasets", dataset({"url": "https://x/y.tar.zst"}), "y.tar.zst, which cannot be unpack"),
        ("datasets", dataset({"folder": "../x"}), "has the folder ../x, which leaves"),
        ("datasets", dataset(others=[{}]), "iris 1 is 2 times in datasets_published"),
        (
            "datasets",
            dataset(name="i.s", others=[{"name": "i-s"}]),
            "i-s and i.s would both set DATASET_I_S",
        ),
        (
            "datasets",
            dataset(files=[{"url": f"https://{host}/a", "sha256": "0" * 64} for host in "xy"]),
            "iris 1 has 2 files a; give them different folders",
        ),
        ("enroot", {"enroot_version": "4.9.7"}, "enroot_sha256 has no 4.9.7-amd64-enroot"),
        ("enroot", {"enroot_version": "3.5.0"}, "enroot_version is 3.5.0"),
        ("enroot", {"enroot_settings": {"MOUNT_HOME": True}}, "has MOUNT_HOME, which enroot"),
        (
            "environment_modules",
            modulefiles({"default": True}, {"version": "4", "default": True}),
            "tool has 2 defaults, 3, 4",
        ),
        ("environment_modules", modulefiles({"name": "my tool"}), '[0].name is "my tool"'),
        ("environment_modules", modulefiles({"folder": "srv/x"}), 'tool/3 has the folder "srv/x"'),
        ("environment_modules", modulefiles({"conflict": ["tol"]}), "tool/3 conflicts with tol"),
        (
            "grafana",
            {"grafana_settings": {"auth.anonymous": {"enabled": True}}},
            "anonymous.enabled",
        ),
        ("grafana", {"grafana_protocol": "http", "grafana_address": ""}, 'grafana_address is ""'),
        ("grafana", {"grafana_dashboard_folders": {"Site": "/nowhere"}}, "dashboard_folders: "),
        ("job_report", {"job_report_url": "http://localhost:9090"}, "is http://localhost:9090"),
        (
            "job_report",
            {"job_report_url": "https://localhost:9090", "job_report_password_file": ""},
            "job_report_password_file is empty",
        ),
        (
            "job_report",
            {"job_report_mail": True, "job_report_mailer": ["sendmail"]},
            "that begins with the path of a program",
        ),
        (
            "job_report",
            {"job_report_mail": True, "job_report_mail_sender": "slurm"},
            "job_report_mail_sender is slurm; set it to an address",
        ),
        ("firewall", {**ON, "firewall_ssh_from": []}, "and nobody could log in any more"),
        ("firewall", {**ON, "firewall_ssh_from": ["vpn"]}, "firewall_ssh_from has 'vpn', which"),
        (
            "firewall",
            {**ON, "firewall_allow": [{"port": "ssh", "from": ["anywhere"]}]},
            "firewall_allow[0] has the port ssh",
        ),
        (
            "log_collection",
            {
                "log_collection_host": "localhost",
                "log_collection_name": "node1",
                "log_collection_hosts": ["node1"],
            },
            "log_collection_hosts lacks localhost",
        ),
        ("login_limits", {"login_limits_cpu_quota": "0"}, "login_limits_cpu_quota is 0"),
        ("login_limits", {"login_limits_exempt": ["1000"]}, 'login_limits_exempt has "1000"'),
        ("munge", {"munge_key_file": "secrets/munge.key"}, "munge_key_file is secrets/munge.key"),
        ("munge", {"munge_threads": 0}, "munge_threads is 0; set it to 1 or more"),
        (
            "node_health",
            {"node_health_checks": {"munge": {"builtin": "mungo"}}},
            "node_health_checks.munge.builtin is mungo",
        ),
        *(
            ("node_reboot", {"node_reboot_at_once": value}, f"node_reboot_at_once is {value}")
            for value in ("0", "many", "0%")
        ),
        *(
            ("node_update", {"node_update_at_once": value}, f"node_update_at_once is {value}")
            for value in ("0", "many", "0%")
        ),
        (
            "node_update",
            {"node_update_packages": "some"},
            "node_update_packages is some; set it to all, security or none",
        ),
        (
            "node_update",
            {"node_update_quarantine_why": " "},
            "set a suite such as burn-in, what the nodes are suspected of",
        ),
        (
            "slurm_exporter",
            {"slurm_exporter_ledger_folder": "node-history"},
            "slurm_exporter_ledger_folder is node-history; give the absolute path of the folder",
        ),
        (
            "nvidia_driver",
            {
                "nvidia_driver_source": "cuda_repo",
                "nvidia_driver_gpu_model": "h100_sxm",
                "nvidia_driver_gpu_count": 8,
                "nvidia_driver_branch": 580,
                "nvidia_driver_modules": "proprietary",
                "nvidia_driver_gpudirect_storage": True,
            },
            "GPUDirect Storage needs NVIDIA's open kernel modules",
        ),
        (
            "nccl_inspector",
            {"nccl_inspector_hang_action": "kill"},
            "set the first to asking or all",
        ),
        ("nccl_inspector", {"nccl_inspector_jobs": "all"}, "there is no library; set"),
        (
            "nccl_inspector",
            {"nccl_inspector_library_url": "https://files.example.org/x.so"},
            "nccl_inspector_library_sha256 empty",
        ),
        ("nccl_inspector", {"nccl_inspector_library": "x.so"}, "set either the absolute path"),
        ("nccl_inspector", {"nccl_inspector_hang_polls": 1}, "nccl_inspector_hang_polls 1"),
        (
            "nccl_inspector",
            {"nccl_inspector_hang_action": "mail", "nccl_inspector_mail_program": "mail"},
            "nccl_inspector_mail_program is mail",
        ),
        (
            "nvidia_mig",
            {"nvidia_mig_model": "a100_sxm", "nvidia_mig_layout": {"3g.20gb": 5}},
            "5 of 3g.20gb on every GPU, for which no a100_sxm has room",
        ),
        (
            "opensm",
            {"opensm_priority": 16, "opensm_fabric": "ib_ndr400"},
            "opensm_priority is 16; set it to a number from 0 to 15",
        ),
        (
            "opensm",
            {"opensm_priority": 0, "opensm_fabric": "ethernet"},
            "the fabric is ethernet, which has no subnet manager",
        ),
        ("opensm", {"opensm_ports": ["mlx5_0"]}, "opensm_ports has mlx5_0, which is no GUID"),
        ("rdma", {"rdma_ports": 0}, "rdma_ports is 0"),
        (
            "rdma",
            {"rdma_source": "doca_ofed", "rdma_prebuilt_peermem": True},
            "so that it would not load; set nvidia_driver_peermem to false",
        ),
        (
            "shared_storage",
            {
                "shared_storage_exports": [
                    {"server": "ctl1", "path": "/srv/home", "tier": "home", "clients": ["*"]}
                ]
            },
            "the export /srv/home of ctl1 is for *",
        ),
        ("site_image", {"site_image_file": "image.sqsh"}, "site_image_file is image.sqsh"),
        ("site_image", {"site_image_file": "/srv/image"}, "ends with .sqsh"),
        ("site_image", {"site_image_torch": "included"}, "site_image_rootfs, which should contain"),
        (
            "site_image",
            {"site_image_rootfs": "/x", "site_image_torch": "distribution"},
            "set site_image_torch",
        ),
        ("site_image", {"site_image_environment": {"A-B": 1}}, "site_image_environment has A-B"),
        ("slurm_associations", {"slurm_associations_users": [{"name": "eve"}]}, "user eve has no"),
        (
            "slurm_associations",
            {
                "slurm_associations_qos": [{"name": "normal"}, {"name": "short"}],
                "slurm_associations_accounts": [
                    {"name": "root", "qos": ["normal"]},
                    {"name": "physics", "qos": ["normal", "shrt"]},
                ],
            },
            "account physics: qos names the QOS shrt, which is not declared; did you mean short?",
        ),
        ("slurm_database", {"slurm_database_password": "changeme"}, "shorter than 16 characters"),
        (
            "slurm_database",
            {"slurm_database_password": "", "slurm_database_password_file": "secrets/x"},
            'is "secrets/x"',
        ),
        (
            "slurm_exporter",
            {"slurm_exporter_timeout": 5, "slurm_exporter_interval": 15},
            "slurm_exporter_interval to 20 or more",
        ),
        ("slurm_exporter", {"slurm_exporter_collectors": ["moon"]}, "collectors is moon"),
        (
            "slurm_exporter",
            {"slurm_exporter_collectors": ["history", "xids"]},
            "slurm_exporter_collectors has xids, slurm_exporter_prometheus_url is empty",
        ),
        (
            "slurm_exporter",
            {
                "slurm_exporter_collectors": ["history", "xids"],
                "slurm_exporter_prometheus_url": "http://mon1:9090",
                "slurm_exporter_prometheus_password_file": "/etc/hostname",
            },
            "slurm_exporter_prometheus_url is http://mon1:9090",
        ),
        (
            "slurm_exporter",
            {"job_metrics": True, "slurm_constrain": False},
            "set job_metrics to false, or slurm_constrain to true",
        ),
        (
            "slurm_install",
            {"slurm_install_method": "packages", "slurm_install_folder": ""},
            "neither slurm_install_repository nor",
        ),
        ("slurm_install", {"slurm_install_method": "build"}, "slurm_install_url is empty"),
        ("slurmrestd", REST | {"slurmrestd_socket": "0.0.0.0:6820"}, "unencrypted"),
        (
            "slurmrestd",
            REST | {"slurmrestd_host": "x", "slurmrestd_hosts": ["a", "b"]},
            "set it to one of a, b.",
        ),
        ("slurmrestd", REST | {"slurmrestd_key_file": "key"}, "slurmrestd_key_file is key"),
        (
            "slurmrestd",
            REST | {"slurmrestd_site_settings": {"slurm_settings": {"AuthAltTypes": "auth/slurm"}}},
            "slurm_settings.AuthAltTypes is auth/slurm",
        ),
        ("user_examples", {"user_examples_folder": "/opt"}, "user_examples_folder is /opt"),
        ("user_libraries", library(), f"tools 1 is not locked: {__file__}:1: this line is no requ"),
        (
            "user_libraries",
            library(requirements=""),
            ".libraries/tools-1.txt: No such file or directory",
        ),
        ("user_libraries", library(name="my tools"), '[0].name is "my tools"; a name is made of'),
        (
            "user_libraries",
            library() | {"user_libraries_path": "opt"},
            "user_libraries_path is 'opt'; give the full path of a folder",
        ),
        (
            "user_software",
            {"user_software_debs": [{"url": "https://m/apptainer_1.4.5_amd64.deb"}]},
            "user_software_debs: https://m/apptainer_1.4.5_amd64.deb has no SHA-256",
        ),
        ("node_base", {"node_base_umask": "27"}, 'node_base_umask is "27"; set it to three octal'),
        (
            "user_software",
            {
                "user_software_debs": [
                    {"url": "https://m/apptainer-suid_1_a.deb", "sha256": "0" * 64}
                ]
            },
            "user_software_debs has apptainer-suid",
        ),
        (
            "user_software",
            {"user_software_nccl": True, "user_software_nccl_version": "2.1.0"},
            "the wheel of NCCL 2.1.0 for CUDA 13 has no SHA-256 here",
        ),
        (
            "user_software",
            {"user_software_nccl": True, "user_software_driver_branch": 570},
            "NCCL for CUDA 13 needs a driver of branch 580 or newer, and gpu1 declares 570",
        ),
        (
            "validation_runtime",
            {
                "validation_runtime_source": "distribution",
                "validation_runtime_gpu_model": "h100_sxm",
            },
            "the distribution's torch has no CUDA",
        ),
        (
            "node_base",
            {"node_base_mirror": "192.0.2.1"},
            'node_base_mirror is "192.0.2.1"; set cluster_mirror to http://HOST:PORT',
        ),
        (
            "node_base",
            {"node_base_mirror": "http://m:8480", "node_base_apt_proxy": "http://p:3142"},
            "APT asks one of them only",
        ),
    ],
)
def test_what_cannot_work_is_one_sentence(
    read: Site, role: str, variables: dict[str, Any], words: str
) -> None:
    sentences = refusals(read, role, variables)
    assert [sentence for sentence in sentences if words in sentence], sentences


ROOT = {"SSH_CONNECTION": "192.0.2.1 4711 192.0.2.2 22", "USER": "root"}


@pytest.mark.parametrize("came", [ROOT, {"USER": "root", "SUDO_USER": "root"}])
def test_a_baseline_that_locks_ansible_out_is_refused(read: Site, came: dict[str, str]) -> None:
    """Where it comes as root, unless the site lets root in."""
    facts = {"env": came}
    [sentence] = refusals(read, "node_base", {}, facts)
    assert sentence.startswith("Ansible logs in to gpu1 as root, whom sshd refuses")
    assert refusals(read, "node_base", {"node_base_root_login": True}, facts) == []
    assert refusals(read, "node_base", {"node_base_baseline": False}, facts) == []


@pytest.mark.parametrize(
    "came",
    [
        {"USER": "root", "SUDO_USER": "ops"},
        ROOT | {"SUDO_USER": "ops"},  # where sudo keeps it
        ROOT | {"USER": "ops"},  # su
        {"USER": "root"},  # no SSH
    ],
)
def test_whoever_becomes_root_is_locked_out_by_no_baseline(
    read: Site, came: dict[str, str]
) -> None:
    assert refusals(read, "node_base", {}, {"env": came}) == []


@pytest.mark.parametrize(
    ("role", "facts", "words"),
    [
        (
            "node_base",
            {"distribution": "Slackware", "distribution_major_version": "15"},
            "gpu1 runs Slackware 15, which is not supported",
        ),
        (
            "enroot",
            {"architecture": "riscv64"},
            "enroot has packages for amd64 and arm64, and gpu1 is riscv64",
        ),
        (
            "prometheus",
            {"distribution": "Ubuntu", "distribution_major_version": "22"},
            "the Prometheus of Ubuntu 22.04 is 2.31 and cannot load our rules",
        ),
    ],
)
def test_what_a_host_is_decides(read: Site, role: str, facts: dict[str, Any], words: str) -> None:
    sentences = refusals(read, role, {"enroot_install": True}, facts)
    assert [sentence for sentence in sentences if words in sentence], sentences


@pytest.mark.parametrize(
    ("system", "made", "key"),
    [
        ("Debian", "apt install dkms, then dkms generate_mok", "/var/lib/dkms/mok.pub"),
        ("Ubuntu", "update-secureboot-policy --new-key", "/var/lib/shim-signed/mok/MOK.der"),
    ],
)
def test_the_key_of_secure_boot_is_the_distributions(
    read: Site, system: str, made: str, key: str
) -> None:
    own = yaml.safe_load((ROLES / "nvidia_driver/vars/main.yml").read_text())
    variables = own | {"ansible_facts": {"distribution": system}}
    names = ("__nvidia_driver_key_made_by", "__nvidia_driver_key")
    texts = [trust_as_template(own[name]) for name in names]
    assert [read.engine.render(variables, text) for text in texts] == [made, key]


@pytest.mark.parametrize(("user", "problems"), [("plumbline-validation", 0), ("eve", 1)])
def test_the_validations_account_may_have_a_reservation(
    read: Site, user: str, problems: int
) -> None:
    """It is in the associations that are made, and no site declares it."""
    reservation = {"name": "acceptance", "nodes": ["gpu1"], "users": [user]}
    variables = {
        "slurm_accounts": [{"name": "physics"}],
        "slurm_users": [{"name": "ada", "account": "physics"}],
        "slurm_reservations": [{**reservation, "start": "now", "duration": "60"}],
    }
    sentences = refusals(read, "slurm", variables, host="ctl1")
    assert len([text for text in sentences if "acceptance" in text]) == problems, sentences
