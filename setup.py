"""Compile the hot modules with mypyc where a C compiler is at hand; the rest stands in pyproject.toml.

`AMQPD_COMPILE` decides. Unset: `pip install .` compiles if it can and otherwise installs pure Python, saying
so (`pip install -v .` shows it, and the daemon names its flavour when it starts). `0` never compiles. `1`
compiles or fails. An editable install compiles only with `1`: a compiled module hides later edits.
"""

import atexit
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Extension, setup
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent

# Never compiled: packages' own modules, and the sync helper, which a plain interpreter starts in a process of
# its own and which must not load anything big.
HOT = [
    "broker/core/**/*.py",
    "broker/store/**/*.py",
    "broker/journal/recorder.py",
    "broker/adapters/**/*.py",
    "broker/net/transport.py",
    "broker/net/pump.py",
    "protocol/amqp091/incoming.py",
    "protocol/amqp091/repeat.py",
    "protocol/amqp091/wire.py",
    "protocol/amqp091/content.py",
    "protocol/amqp091/lookup.py",
    "protocol/amqp10/annotations.py",
    "protocol/amqp10/constructors.py",
    "protocol/amqp10/decoding.py",
    "protocol/amqp10/dispositions.py",
    "protocol/amqp10/encoding.py",
    "protocol/amqp10/entries.py",
    "protocol/amqp10/fields.py",
    "protocol/amqp10/flows.py",
    "protocol/amqp10/frames.py",
    "protocol/amqp10/headers.py",
    "protocol/amqp10/outgoing.py",
    "protocol/amqp10/properties.py",
    "protocol/amqp10/scalars.py",
    "protocol/amqp10/sections.py",
    "protocol/amqp10/serials.py",
    "protocol/amqp10/states.py",
    "protocol/amqp10/transfers.py",
    "protocol/amqp10/unsettled.py",
    "protocol/amqp10/windows.py",
    "protocol/amqp10/writing.py",
    "protocol/conversion/*.py",
    "protocol/journal/encoder.py",
    "protocol/journal/names.py",
    "protocol/journal/records.py",
    "protocol/streams/*.py",
]
COLD = {"__init__.py", "extensions.py", "sync_helper.py"}
PROCESSES = min(os.cpu_count() or 1, 8)  # compilers at once; each takes some 100 MB

FALLBACK = "installing pure Python, which works the same and is slower"
BUILDING = {"bdist_wheel", "build", "build_ext", "editable_wheel", "install"}
EDITABLE = {"editable_wheel"}


def hot_modules() -> list[str]:
    """The modules to compile, as paths relative to this file."""
    paths = {path for pattern in HOT for path in HERE.glob(pattern) if path.name not in COLD}
    return sorted(str(path.relative_to(HERE)) for path in paths)


def compiler_trouble(folder: str) -> str:
    """Why no extension module can be compiled here, or "" if one can: compiler and Python.h are tried."""
    command = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    source = Path(folder, "probe.c")
    source.write_text("#include <Python.h>\nint probe(void) { return PY_MAJOR_VERSION; }\n")
    includes = ["-I" + sysconfig.get_path("include"), "-I" + sysconfig.get_path("platinclude")]
    command += [*includes, "-c", str(source), "-o", str(Path(folder, "probe.o"))]
    try:
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)  # noqa: S603
    except (OSError, subprocess.TimeoutExpired) as error:
        return f"no C compiler ({error})"
    if done.returncode == 0:
        return ""
    said = done.stderr.strip().splitlines()
    return f"{command[0]} cannot compile an extension module ({said[0] if said else 'no reason given'})"


class BuildAllOrNone(build_ext):
    """The compiled modules share one library and cannot work without each other."""

    def initialize_options(self) -> None:
        """Build the extension modules side by side."""
        super().initialize_options()
        self.parallel = PROCESSES

    def build_extension(self, ext: Extension) -> None:
        """Compile the sources of one module side by side too, as the library has hundreds; then link them."""

        def compile_one(source: str) -> list[str]:
            objects: list[str] = self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=ext.include_dirs,
                extra_postargs=ext.extra_compile_args,
            )
            return objects

        with ThreadPoolExecutor(PROCESSES) as pool:
            for objects in pool.map(compile_one, ext.sources):
                ext.extra_objects.extend(objects)
        ext.sources = []
        super().build_extension(ext)

    def build_extensions(self) -> None:
        """Build the extension modules; if one of them failed, remove the others."""
        super().build_extensions()
        paths = [Path(self.get_ext_fullpath(extension.name)) for extension in self.extensions]
        if not all(path.exists() for path in paths):
            for path in paths:
                path.unlink(missing_ok=True)
            print(f"amqpd: compiling failed; {FALLBACK}", flush=True)


def compiled(folder: str) -> list[Extension]:
    """Translate the hot modules to C; the C files go into `folder`. Types are checked elsewhere, not here."""
    from mypyc.build import mypycify

    lenient = [
        "--config-file=",
        "--ignore-missing-imports",
        "--follow-imports=silent",
        "--explicit-package-bases",
    ]
    return mypycify(
        [*lenient, *hot_modules()],
        opt_level="3",
        debug_level="0",
        group_name="amqpd",
        multi_file=True,  # one C file of them all takes twice as long on two cores, and 2 GB
        target_dir=str(Path(folder, "mypyc")),
    )


def extensions(folder: str) -> list[Extension]:
    """The extension modules that this command builds: none if it builds nothing or must stay pure Python."""
    wish = os.environ.get("AMQPD_COMPILE", "")
    commands = set(sys.argv[1:])
    if not commands & BUILDING or wish == "0" or (commands & EDITABLE and wish != "1"):
        return []
    trouble = compiler_trouble(folder)
    if not trouble:
        try:
            modules = compiled(folder)
        except (Exception, SystemExit) as error:  # mypyc ends the process when it finds an error
            trouble = f"mypyc failed ({type(error).__name__}: {error})"
        else:
            for module in modules:
                module.optional = wish != "1"
            return modules
    if wish == "1":
        sys.exit(f"amqpd: AMQPD_COMPILE=1, but {trouble}")
    print(f"amqpd: {trouble}; {FALLBACK}", flush=True)
    return []


os.chdir(HERE)
# A fresh folder for each build: what an earlier build left behind can neither be installed nor mask this one.
scratch = tempfile.mkdtemp(prefix="amqpd-build-")
atexit.register(shutil.rmtree, scratch, ignore_errors=True)
setup(
    ext_modules=extensions(scratch),
    cmdclass={"build_ext": BuildAllOrNone},
    options={"build": {"build_base": scratch}},
)
