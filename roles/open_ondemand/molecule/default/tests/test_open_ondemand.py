"""The files on a host; tests/test_open_ondemand.py holds them against the format."""

import yaml

APP = "/var/www/ood/apps/sys/plumbline_jupyter"
FILES = ("/etc/ood/config/clusters.d/plumbline.yml", f"{APP}/form.yml", f"{APP}/manifest.yml")


def test_files_are_yaml_that_others_can_read(host):
    for path in FILES:
        file = host.file(path)
        assert (file.user, file.mode) == ("root", 0o644)
        assert yaml.safe_load(file.content_string)


def test_scripts_are_scripts(host):
    for name in ("before", "script"):
        host.check_output(f"bash -n {APP}/template/{name}.sh.erb")
