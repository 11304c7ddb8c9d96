"""Build hook: wheels carry the native engine, compiled for every instruction set of the platform.

TRANSDUCE_WHEEL names another platform, for which zig compiles.

Without a C++ compiler the wheel is pure Python, and the engine is compiled on first use, like that
of an editable install.  The modules for web pages are files of the package.
"""

from __future__ import annotations

import os
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

PACKAGE = "transduce/engine/prebuilt"


class EngineHook(BuildHookInterface[Any]):
    """Compiles the engine into a temporary directory, and adds its libraries to the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is made; `version` is "editable" for such installs."""
        if self.target_name != "wheel" or version == "editable":
            return
        sys.path.insert(0, str(self._sources()))
        from transduce.engine import build
        from transduce.errors import SettingError

        tag = os.environ.get("TRANSDUCE_WHEEL")
        target = next((wheel for wheel in build.WHEELS if wheel.tag == tag), None)
        if tag and target is None:
            tags = ", ".join(wheel.tag for wheel in build.WHEELS)
            raise ValueError(f"TRANSDUCE_WHEEL = {tag!r} is none of {tags}")
        self._directory = tempfile.TemporaryDirectory(prefix="transduce-engine-")
        made = Path(self._directory.name)

        try:
            sets = build.instruction_sets(target and target.machine)
            libraries = [build.compile_library(each, made, target) for each in sets]
        except SettingError as error:
            if target is not None:
                raise
            self.app.display_warning(f"wheel without the native engine: {error}")
            libraries = []
        if libraries:
            here = sysconfig.get_platform().replace("-", "_").replace(".", "_")
            build_data["pure_python"] = False
            build_data["tag"] = f"py3-none-{tag or here}"
        else:
            self._directory.cleanup()
        for path in libraries:
            build_data["force_include"][str(path)] = f"{PACKAGE}/{path.name}"

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """Called by hatchling once the wheel is there."""
        if hasattr(self, "_directory"):
            self._directory.cleanup()

    def _sources(self) -> Path:
        """The directory with the package: of this project, or of the one that it is made from."""
        return next(
            directory / "src"
            for directory in (Path(self.root), *Path(self.root).parents)
            if (directory / "src" / "transduce").is_dir()
        )
