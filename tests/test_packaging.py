import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

from lrptrain.extras import require

ROOT = Path(__file__).resolve().parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))


def run(code: str, folder: Path, *options: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, *options, "-c", code], cwd=folder, capture_output=True, text=True, check=False
    )


@pytest.fixture(scope="module")
def wheel(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("wheel")
    # From a copy without the link, as a clone on a system without symbolic links has it.
    source = folder / "source"
    source.mkdir()
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
    ).stdout.split()
    for name in listed:
        path = ROOT / name
        if (
            path.is_file()
            and not path.is_symlink()
            and name.startswith(("lrptrain/", "callbacks/", "pyproject", "LICENSE", "README"))
        ):
            (source / name).parent.mkdir(parents=True, exist_ok=True)
            (source / name).write_bytes(path.read_bytes())
    command = [sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", str(folder), str(source)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    return next(folder.glob("*.whl"))


def test_a_release_has_one_version_and_a_log():
    version = PROJECT["project"]["version"]
    assert f"\nversion: {version}\n" in (ROOT / "CITATION.cff").read_text(encoding="utf-8")
    assert f"\n## [{version}]" in (ROOT / "CHANGELOG.md").read_text(encoding="utf-8")
    recipe = (ROOT / ".github" / "conda" / "recipe.yaml").read_text(encoding="utf-8")
    assert f"version: {version}\n" in recipe
    for requirement in PROJECT["project"]["dependencies"]:
        name, least = requirement.split(">=")
        conda = {"torch": "pytorch"}.get(name, name)
        assert f"- {conda} >={least}\n" in recipe, "the recipe needs what the wheel needs"


def test_every_package_on_disk_is_declared():
    found = {str(path.parent.relative_to(ROOT)).replace("/", ".") for path in (ROOT / "lrptrain").rglob("__init__.py")}
    assert found | {"lrptrain.callbacks"} == set(PROJECT["tool"]["setuptools"]["packages"])


def test_the_wheel_has_callbacks_inside_and_no_bare_one(wheel: Path):
    names = zipfile.ZipFile(wheel).namelist()
    assert {name.partition("/")[0] for name in names if not name.startswith("lrptrain-")} == {"lrptrain"}
    assert "lrptrain/callbacks/relevance_monitor.py" in names
    assert "lrptrain/py.typed" in names
    assert {f"lrptrain/dashboard/{name}" for name in ("templates/page.html", "static/app.js")} <= set(names)


def test_the_wheel_works_by_itself(wheel: Path, tmp_path: Path):
    """What the docs reach through the package is there without another import."""
    zipfile.ZipFile(wheel).extractall(tmp_path / "site")
    code = (
        "import sys; sys.path.insert(0, 'site'); import lrptrain; lrptrain.loggers.read_findings;"
        "c = lrptrain.callbacks; lrptrain.guidance.guidance_loss;"
        "assert 'site' in lrptrain.__file__ and 'site' in c.__file__, (lrptrain.__file__, c.__file__);"
        "print(len(lrptrain.methods()), c.RelevanceMonitor.__module__)"
    )
    done = run(code, tmp_path)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[1] == "lrptrain.callbacks.relevance_monitor"


def test_the_bare_folder_refuses_to_be_imported():
    done = run("import callbacks", ROOT)
    assert done.returncode != 0
    assert "import lrptrain.callbacks" in done.stderr


def test_a_missing_extra_explains_itself():
    with pytest.raises(ImportError, match=r"pip install 'lrptrain\[wandb\]'"):
        require("no_such_module_at_all", "wandb")


def test_without_an_extra_the_command_that_installs_it_is_said(tmp_path: Path):
    lines = [
        "import sys",
        "class Missing:",
        "    def find_spec(self, name, *_):",
        "        if name.partition('.')[0] == 'scipy':",
        "            raise ModuleNotFoundError(name, name='scipy')",
        "sys.meta_path.insert(0, Missing())",
        "import lrptrain",
        "for name in ('inspect', 'Guidance'):",
        "    try: getattr(lrptrain, name)",
        "    except ImportError as error: print(error)",
    ]
    done = run("\n".join(lines), tmp_path)
    line = "scipy.special is needed here and is not installed: pip install 'lrptrain[monitor]'"
    assert done.stdout.splitlines() == [line] * 2, done.stderr


def test_the_constraints_name_versions_and_no_hosts():
    lines = (ROOT / "constraints.txt").read_text(encoding="utf-8").split()
    assert all(line.count("==") == 1 and "/" not in line and "@" not in line for line in lines)
    assert {"torch", "numpy", "pytorch-lightning", "timm", "transformers", "wandb"} <= {
        line.split("==")[0] for line in lines
    }
