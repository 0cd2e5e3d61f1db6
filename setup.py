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
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from multiprocessing import get_context
from pathlib import Path

from setuptools import Extension, setup
from setuptools._distutils.ccompiler import new_compiler
from setuptools._distutils.sysconfig import customize_compiler
from setuptools.command.build_ext import build_ext

HERE = Path(__file__).resolve().parent

HOT = [
    "broker/core/**/*.py",
    "broker/store/**/*.py",
    "broker/journal/recorder.py",
    "broker/adapters/**/*.py",
    "broker/forwarding/attempt.py",
    "broker/forwarding/bulk.py",
    "broker/forwarding/local.py",
    "broker/forwarding/ports.py",
    "broker/forwarding/readers.py",
    "broker/forwarding/rewriting.py",
    "broker/forwarding/shovel.py",
    "broker/forwarding/staged.py",
    "broker/net/transport.py",
    "broker/net/pump.py",
    "protocol/amqp091/client.py",
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
    "protocol/sasl.py",
    "protocol/journal/encoder.py",
    "protocol/journal/names.py",
    "protocol/journal/records.py",
    "protocol/streams/*.py",
]
# The hot modules among these handle each message. The compiler optimizes them more than the others.
FAST = [
    "broker/core/delivery/*.py",
    "broker/core/entries/cursor.py",
    "broker/core/entries/entry.py",
    "broker/core/entries/index.py",
    "broker/core/entries/list.py",
    "broker/core/entries/places.py",
    "broker/core/entries/priority.py",
    "broker/core/message.py",
    "broker/core/partitions/*.py",
    "broker/core/publishing/routed_message.py",
    "broker/core/publishing/publisher.py",
    "broker/core/queues/consumer.py",
    "broker/core/queues/consumers.py",
    "broker/core/queues/queue.py",
    "broker/core/queues/returns.py",
    "broker/core/queues/state.py",
    "broker/core/routing/exchanges.py",
    "broker/core/routing/topic.py",
    "broker/store/appender.py",
    "broker/store/batch.py",
    "broker/store/commit.py",
    "broker/store/format.py",
    "broker/store/group_commit.py",
    "broker/store/held.py",
    "broker/store/log.py",
    "broker/store/segment.py",
    "broker/journal/recorder.py",
    "broker/adapters/amqp091/channel.py",
    "broker/adapters/amqp091/confirms.py",
    "broker/adapters/amqp091/connection.py",
    "broker/adapters/amqp091/deliver.py",
    "broker/adapters/amqp091/publish.py",
    "broker/adapters/amqp091/settle.py",
    "broker/adapters/amqp10/answers.py",
    "broker/adapters/amqp10/assembly.py",
    "broker/adapters/amqp10/connection.py",
    "broker/adapters/amqp10/receive.py",
    "broker/adapters/amqp10/send.py",
    "broker/adapters/amqp10/session.py",
    "broker/adapters/amqp10/settle.py",
    "broker/adapters/amqp10/target.py",
    "broker/adapters/peers/unsettled.py",
    "broker/net/*.py",
    "protocol/amqp091/*.py",
    "protocol/amqp10/*.py",
    "protocol/journal/*.py",
    "protocol/streams/*.py",
]
# Without four passes, which take a tenth of the compiler's time; no message costs more without them.
FAST_OPTIONS = ("-O2", "-fno-gcse", "-fno-schedule-insns2", "-fno-tree-pre", "-fno-tree-vectorize")
OTHER_OPTIONS = ("-Og",)
# Never compiled: packages' own modules, and the sync helper. A plain interpreter starts the helper in a
# process of its own, and the helper must not load anything big.
COLD = {"__init__.py", "extensions.py", "sync_helper.py"}
Options = tuple[str, ...]
PROCESSES = min(os.cpu_count() or 1, 8)  # compilers at once; each takes some 200 MB

# A C file includes 1.4 MB of declarations, so several modules are compiled as a single unit. Larger units
# take more memory and share the cores less well.
UNIT_BYTES = 1_500_000
# Nothing outside the library uses its symbols, so calls and globals within it need no indirection.
LIBRARY_FLAGS = ["-fvisibility=hidden"]

# The few names of Python.h that the loader of a module uses. Python.h itself costs more than the loader.
PYTHON_H = """\
#define NULL ((void *)0)
#define PyMODINIT_FUNC __attribute__((visibility("default"))) PyObject *
#define Py_DECREF Py_DecRef
typedef struct _object PyObject;
PyObject *PyImport_ImportModuleLevel(const char *, PyObject *, PyObject *, PyObject *, int);
PyObject *PyObject_GetAttrString(PyObject *, const char *);
PyObject *Py_BuildValue(const char *, ...);
void *PyCapsule_GetPointer(PyObject *, const char *);
void PyErr_Clear(void);
void Py_DecRef(PyObject *);
"""

# mypyc reads the types of these packages alone. It would also read those of every library that is installed
# where the build runs, at a cost of 100 MB and more.
TYPES_READ = """\
[mypy]
follow_imports = skip
[mypy-broker.*,config.*,protocol.*,pamqp.*]
follow_imports = silent
"""

FALLBACK = "installing pure Python, which works the same and is slower"
BUILDING = {"bdist_wheel", "build", "build_ext", "editable_wheel", "install"}
EDITABLE = {"editable_wheel"}


def matching(patterns: list[str]) -> set[str]:
    """The modules that match, as paths relative to this file; a pattern that matches none ends the build."""
    found: set[str] = set()
    for pattern in patterns:
        paths = {str(path.relative_to(HERE)) for path in HERE.glob(pattern) if path.name not in COLD}
        if not paths:
            sys.exit(f"amqpd: no module matches {pattern!r} in setup.py; correct or remove the pattern")
        found |= paths
    return found


def hot_modules() -> list[str]:
    """The modules to compile, as paths relative to this file."""
    return sorted(matching(HOT))


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


def joined(sources: list[str]) -> list[list[str]]:
    """Split C files into groups of about UNIT_BYTES, neighbours together."""
    groups: list[list[str]] = []
    size = UNIT_BYTES
    for source in sorted(sources):
        size += os.path.getsize(source)
        if size > UNIT_BYTES:
            groups.append([])
            size = os.path.getsize(source)
        groups[-1].append(source)
    return groups


def units(sources: list[str]) -> list[tuple[str, Options]]:
    """Write the units that include the C files of a library; return each with its options of the compiler."""
    if len(sources) == 1:
        return [(sources[0], OTHER_OPTIONS)]
    names = {
        "__native_" + module.removesuffix(".py").replace(os.sep, "___") + ".c" for module in matching(FAST)
    }
    # The other files of C are mypyc's library, which each compiled function calls.
    names |= {Path(source).name for source in sources if not Path(source).name.startswith("__native_")}
    fast = [source for source in sources if Path(source).name in names]
    others = [source for source in sources if Path(source).name not in names]
    found: list[tuple[str, Options]] = []
    for options, groups in ((FAST_OPTIONS, joined(fast)), (OTHER_OPTIONS, joined(others))):
        for group in groups:
            unit = Path(group[0]).with_name(f"unit{len(found)}.c")
            unit.write_text("".join(f'#include "{source}"\n' for source in group))
            found.append((str(unit), options))
    return found


class BuildAllOrNone(build_ext):
    """The compiled modules share one library and cannot work without each other."""

    extensions: list[Extension]

    def initialize_options(self) -> None:
        """Build the extension modules side by side."""
        super().initialize_options()
        self.parallel = PROCESSES

    def build_extension(self, ext: Extension) -> None:
        """Compile the sources of one module side by side too, as the library has many; then link them."""

        def compile_one(unit: tuple[str, Options]) -> list[str]:
            source, options = unit
            objects: list[str] = self.compiler.compile(
                [source],
                output_dir=self.build_temp,
                include_dirs=ext.include_dirs,
                extra_postargs=[*ext.extra_compile_args, *options, *declarations.get(options, [])],
            )
            return objects

        declarations: dict[Options, list[str]] = {}
        with ThreadPoolExecutor(PROCESSES) as pool:
            if len(ext.sources) > 1:
                for options in (FAST_OPTIONS, OTHER_OPTIONS):
                    declarations[options] = self.prepare_declarations(ext, options)
            for objects in pool.map(compile_one, units(ext.sources)):
                ext.extra_objects.extend(objects)
        ext.sources = []
        super().build_extension(ext)

    def prepare_declarations(self, ext: Extension, options: Options) -> list[str]:
        """Compile the declarations that all units share, once for `options`; return what uses them.

        A compiler that cannot do so, or cannot use the result, reads the declarations of each unit instead.
        """
        source = next(Path(source) for source in ext.sources if Path(source).name.startswith("__native_"))
        header = Path(self.build_temp, f"declarations{options[0]}.h").resolve()
        header.parent.mkdir(parents=True, exist_ok=True)
        headers = sorted(source.parent.glob("__native_*.h"))
        header.write_text("".join(f'#include "{path}"\n' for path in headers))
        command = [
            *self.compiler.compiler_so,
            *(f"-I{folder}" for folder in self.include_dirs + ext.include_dirs),
        ]
        command += [*ext.extra_compile_args, *options, "-x", "c-header", str(header), "-o", f"{header}.gch"]
        done = subprocess.run(command, capture_output=True, check=False)  # noqa: S603
        return ["-include", str(header)] if done.returncode == 0 else []

    def build_extensions(self) -> None:
        """Build each source once and copy the result; if one extension module failed, remove the others."""
        wanted = self.extensions
        built: dict[str, Extension] = {}
        originals = {ext.name: built.setdefault(" ".join(ext.sources), ext) for ext in wanted}
        self.extensions = list(built.values())
        super().build_extensions()
        self.extensions = wanted
        paths = {extension.name: Path(self.get_ext_fullpath(extension.name)) for extension in wanted}
        for name, original in originals.items():
            if name != original.name and paths[original.name].exists():
                shutil.copy(paths[original.name], paths[name])
        if not all(path.exists() for path in paths.values()):
            for path in paths.values():
                path.unlink(missing_ok=True)
            print(f"amqpd: compiling failed; {FALLBACK}", flush=True)


def compiled(folder: str) -> list[Extension]:
    """Translate the hot modules to C; the C files go into `folder`. Types are checked elsewhere, not here."""
    from mypyc.build import mypycify
    from mypyc.common import RUNTIME_C_FILES

    config = Path(folder, "mypy.ini")
    config.write_text(TYPES_READ)
    lenient = [
        f"--config-file={config}",
        "--ignore-missing-imports",
        "--explicit-package-bases",
        "--cache-dir=/dev/null",  # a build is not repeated
    ]
    # A process of its own, since the release of its 0.6 GB of objects at the end of a build took 6 s.
    with ProcessPoolExecutor(1, get_context("fork")) as translator:
        translation = translator.submit(
            mypycify,
            [*lenient, *hot_modules()],
            debug_level="0",
            group_name="amqpd",
            multi_file=True,  # a single C file of all modules takes twice as long on two cores, and 2 GB
            target_dir=str(Path(folder, "mypyc")),
        )
        runtime = compile_runtime(folder)
        modules = translation.result()
    for module in modules:
        module.extra_compile_args = [*module.extra_compile_args, *LIBRARY_FLAGS]
        if len(module.sources) > 1:
            module.sources = [path for path in module.sources if Path(path).name not in RUNTIME_C_FILES]
            module.extra_objects.append(runtime)
    join_loaders([module for module in modules if len(module.sources) == 1])
    return modules


def compile_runtime(folder: str) -> str:
    """Compile mypyc's own library, which each compiled function calls; return the path of the object file."""
    from mypyc.build import include_dir
    from mypyc.common import RUNTIME_C_FILES

    unit = Path(folder, "runtime.c")
    unit.write_text("".join(f'#include "{Path(include_dir(), name)}"\n' for name in RUNTIME_C_FILES))
    compiler = new_compiler()
    customize_compiler(compiler)
    objects: list[str] = compiler.compile(
        [str(unit)],
        output_dir=folder,
        include_dirs=[include_dir(), sysconfig.get_path("include"), sysconfig.get_path("platinclude")],
        extra_postargs=["-g0", "-w", *LIBRARY_FLAGS, *FAST_OPTIONS],
    )
    return objects[0]


def join_loaders(modules: list[Extension]) -> None:
    """Give the modules of a package a single loader: one source, compiled once, with a function for each."""
    texts: dict[Path, list[str]] = {}
    for module in modules:
        loader = Path(module.sources[0])
        text = loader.read_text()
        if "PyModuleDef" in text:  # the loaders of a free-threaded Python use more names
            continue
        joined_loader = loader.with_name(f"loaders_{module.name.rpartition('.')[0]}.c")
        found = texts.setdefault(joined_loader, [PYTHON_H])
        # Each loader defines this name, which only Windows asks for.
        text = text.replace("PyInit___init__", f"PyInit___init__{len(found)}")
        found.append(text.replace("#include <Python.h>\n", ""))
        module.sources = [str(joined_loader)]
    for path, loaders in texts.items():
        path.write_text("".join(loaders))


def extensions(folder: str) -> list[Extension]:
    """The extension modules that this command builds: none if it builds nothing or must stay pure Python."""
    wish = os.environ.get("AMQPD_COMPILE", "")
    commands = set(sys.argv[1:])
    if not commands & BUILDING or wish == "0" or (commands & EDITABLE and wish != "1"):
        return []
    matching(HOT + FAST)  # a stale pattern is an error, not a reason to install pure Python
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
