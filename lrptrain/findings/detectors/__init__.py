"""One file per kind of finding (focus.py has three, which one family of tests decides).

All modules of this folder are imported, and each registers its detectors, so that a new file is a new kind.
`Detector.order` says in which order they look.
"""

import importlib
import pkgutil

for _module in sorted(pkgutil.iter_modules(__path__), key=lambda module: module.name):
    importlib.import_module(f"{__name__}.{_module.name}")
