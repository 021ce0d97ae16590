"""Compiles the path of a request, where a wheel is to be made of this machine's own code.

    scripts/compiled FOLDER

The modules are named in `pyproject.toml`. They are the same files that run uncompiled: mypyc makes
C of their types. Nothing is written beside the sources.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SETUP = """
from mypyc.build import mypycify
from setuptools import setup

setup(name="compiled", packages=[], ext_modules=mypycify({arguments!r}, opt_level="3", multi_file=True))
"""


class CompileHook(BuildHookInterface):
    """Adds the compiled modules to a wheel. They stand in front of their sources, which stay."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """See hatchling. Raises subprocess.CalledProcessError where a module cannot be compiled."""
        if version == "editable":
            return
        self._folder = tempfile.mkdtemp(prefix="onward-compiled-")
        source = Path(self._folder) / "src"
        shutil.copytree(Path(self.root) / "src", source, ignore=shutil.ignore_patterns("__pycache__"))
        modules: list[str] = self.config["modules"]
        arguments = [
            "--config-file=",
            "--ignore-missing-imports",
            "--follow-imports=silent",
            *(f"onward/{name}.py" for name in modules),
        ]
        (source / "setup.py").write_text(_SETUP.format(arguments=arguments))
        build = [sys.executable, "setup.py", "build_ext", "--inplace", "--parallel", str(os.cpu_count() or 1)]
        subprocess.run(build, cwd=source, check=True)
        for made in source.rglob(f"*{_suffix()}"):
            if "build" not in made.relative_to(source).parts:
                build_data["force_include"][str(made)] = str(made.relative_to(source))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """See hatchling."""
        del build_data, artifact_path
        if version != "editable":
            shutil.rmtree(self._folder, ignore_errors=True)


def _suffix() -> str:
    return ".pyd" if os.name == "nt" else ".so"
