"""Keeps what Python compiles of modules in zip archives; a node's Python loads it as it starts.

Ansible brings each task to a node as an archive of sources, which Python compiles each time: half
of what a task costs the node, and thousands of tasks run on a test's nodes. The code is kept by the
hash of its source, so what runs is what was brought. Only root can keep any.
"""

import _imp
import marshal
import os
import zipimport
from importlib._bootstrap_external import _RAW_MAGIC_NUMBER

FOLDER = "/var/cache/zip-code"

compile_source = zipimport._compile_source


def kept_code(path, source):
    """In the place of zipimport's own function: the code of a module, and where it comes from."""
    # The hash that Python itself tells by whether a .pyc file is of a source.
    digest = _imp.source_hash(_RAW_MAGIC_NUMBER, source).hex()
    kept = f"{FOLDER}/{digest}-{len(source)}"
    try:
        with open(kept, "rb") as file:
            code = marshal.loads(file.read())
    except (OSError, EOFError, TypeError, ValueError):
        code = compile_source(path, source)
        new = f"{kept}.{os.getpid()}"
        try:
            with open(new, "wb") as file:
                file.write(marshal.dumps(code))
            os.replace(new, kept)
        except OSError:
            pass
    else:
        # A traceback names the archive of this run.
        _imp._fix_co_filename(code, path)
    return code


zipimport._compile_source = kept_code
