"""For tests of modules, wherever they lie: what ansible.cfg has Ansible send along with them."""

from pathlib import Path

import ansible.module_utils

ansible.module_utils.__path__.append(str(Path(__file__).parent / "playbooks/module_utils"))
