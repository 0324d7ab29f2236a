"""The package list in pyproject.toml is the folder tree."""

import tomllib
from pathlib import Path

ROOT = Path(__file__).parent.parent
ROOMS = ("configs", "kernels", "infer", "capture", "train")


def test_every_package_is_listed_and_every_listed_one_exists():
    settings = tomllib.loads((ROOT / "pyproject.toml").read_text())
    listed = set(settings["tool"]["setuptools"]["packages"])
    found = {
        ".".join(("draftsmith", *path.parent.relative_to(ROOT).parts))
        for room in ROOMS
        for path in (ROOT / room).rglob("__init__.py")
    }
    assert listed == found


def test_every_room_is_typed():
    for room in ROOMS:
        assert (ROOT / room / "py.typed").exists()


def test_a_module_fits_one_sitting():
    long = {
        str(path.relative_to(ROOT)): count
        for room in ROOMS
        for path in (ROOT / room).rglob("*.py")
        if (count := len(path.read_text().splitlines())) > 350
    }
    assert long == {}
