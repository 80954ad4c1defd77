"""The tests of an audit, an object in a file each; see `lrptrain.auditing.base` for how to write one.

All modules of this folder are imported, so that a new file is a new test. `AuditTest.order` says in which order they
are run.
"""

import importlib
import pkgutil

for _module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
    importlib.import_module(f"{__name__}.{_module.name}")
