"""Fuzz the decoders of AMQP 1.0, guided by the code that bytes reach.

`python -m tests.fuzz.amqp10 [FOLDER...] [-OPTION=...]` goes on until something does not hold or it is
stopped. Folders and options are libFuzzer's: what is found to be new goes to the first folder,
`-max_total_time` is in seconds, `-seed` makes a run like another one, a file in the place of a folder is
tried once. Needs atheris, which the extra `fuzz` has, and the sources: of what is compiled it does not see
what bytes reach.
"""

import importlib
import sys
import tempfile
from pathlib import Path

import atheris

BYTES_MAX = 4096
OPTIONS = (f"-max_len={BYTES_MAX}", "-timeout=5", "-rss_limit_mb=1024")  # seconds and memory for one input


def main(arguments: list[str]) -> None:
    """Fuzz; the seeds are written for the run, beside the files of the given folders."""
    with atheris.instrument_imports(include=["protocol.amqp10", "protocol.conversion"]):
        invariants = importlib.import_module("tests.support.amqp10.invariants")
        seeds = importlib.import_module("tests.support.amqp10.seeds").SEEDS
    with tempfile.TemporaryDirectory() as name:
        files = [argument for argument in arguments if not argument.startswith("-")]
        options = [argument for argument in arguments if argument.startswith("-")]
        folders = (
            files if any(Path(file).is_file() for file in files) else [*files, seeded(Path(name), seeds)]
        )
        atheris.Setup([sys.argv[0], *folders, *OPTIONS, *options], invariants.check_invariants)
        atheris.Fuzz()


def seeded(folder: Path, seeds: tuple[bytes, ...]) -> str:
    """Have the seeds as files in this folder."""
    for number, seed in enumerate(seeds):
        (folder / f"seed-{number:02}").write_bytes(seed)
    return str(folder)


if __name__ == "__main__":
    main(sys.argv[1:])
