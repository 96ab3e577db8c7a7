"""Ten tasks of a new user, end to end, from a wheel in a fresh environment: the table in docs/walkthrough.md.

    python docs/tables/walkthrough             all tasks
    python docs/tables/walkthrough 2 9         some of them
    python docs/tables/walkthrough --quick     everything small, to see that it works
    python docs/tables/walkthrough --write     and put the rows into docs/walkthrough.md

Builds a wheel of this checkout, installs it in a new environment (its dependencies come from the current
one), and runs each task there. Prints Markdown. A task is a function that yields rows.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

HERE = Path(__file__).parent
ROOT = HERE.parents[2]
PAGE = ROOT / "docs" / "walkthrough.md"
RULE = "|---|---|---|---|---|"


def in_fresh_environment(arguments: list[str]) -> int:
    """Run this script with the wheel of this checkout, and without the source tree."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with tempfile.TemporaryDirectory() as folder:

        def call(*command: str | Path) -> str:
            return subprocess.run(
                command, cwd=folder, env=environment, check=True, stdout=subprocess.PIPE, text=True
            ).stdout

        call(
            sys.executable, "-m", "build", "--no-isolation", "--wheel", "--outdir", Path(folder, "dist"), ROOT
        )
        call(sys.executable, "-m", "venv", "--without-pip", Path(folder, "fresh"))
        python = Path(folder, "fresh", "bin", "python")
        (wheel,) = Path(folder, "dist").glob("*.whl")
        pip = (sys.executable, "-m", "pip", "--python", python, "--disable-pip-version-check")
        call(*pip, "install", "--quiet", "--no-index", "--no-deps", wheel)
        purelib = call(python, "-c", "import sysconfig; print(sysconfig.get_path('purelib'))").strip()
        # A folder named in a .pth file comes last, and its own .pth files, such as an editable ftnn, have no
        # effect.
        Path(purelib, "dependencies.pth").write_text(sysconfig.get_path("purelib"), "utf-8")
        shutil.copytree(HERE, Path(folder, "walkthrough"))
        command = [python, Path(folder, "walkthrough"), "--here", *arguments]
        with subprocess.Popen(
            command, cwd=folder, env=environment, stdout=subprocess.PIPE, text=True
        ) as task:
            rows: list[str] = []
            for line in task.stdout or ():
                print(line, end="", flush=True)
                rows.append(line.rstrip())
    if "--write" in arguments and task.returncode == 0:
        PAGE.write_text(merged(PAGE.read_text("utf-8"), rows), "utf-8")
    return task.returncode


def merged(page: str, rows: Iterable[str]) -> str:
    """A page with the rows of some tasks instead of its own; the rows of other tasks stay."""
    lines = page.splitlines()
    old = [line for line in lines if _task(line)]
    new = [row for row in rows if _task(row)]
    kept = [row for row in old if _task(row) not in map(_task, new)]
    start = lines.index(RULE) + 1
    return "\n".join([*lines[:start], *sorted([*kept, *new], key=_task), *lines[start + len(old) :], ""])


def _task(line: str) -> int:
    """The number of the task of a row; 0 if the line is no row."""
    found = re.match(r"\| (\d+) \|", line)
    return int(found[1]) if found else 0


def tasks() -> dict[str, Callable[..., Iterator[Any]]]:
    import networks
    import tabular
    import tools

    return {
        "1": tools.reading,
        "2": tabular.estimators,
        "3": networks.damped_sine,
        "4": networks.plain_loop,
        "5": networks.depth,
        "6": networks.mackey_glass,
        "7": networks.images,
        "8": tools.files,
        "9": tabular.tables,
        "10": tools.mistakes,
    }


def main(arguments: list[str]) -> int:
    if "--here" not in arguments:
        return in_fresh_environment(arguments)
    from rows import Effort

    import ftnn

    assert Path(ftnn.__file__).is_relative_to(sys.prefix)  # the wheel, not the source tree
    effort = Effort(splits=2, seeds=2, share=0.02) if "--quick" in arguments else Effort()
    print(f"| task | | ftnn | others | ftnn against the best of them |\n{RULE}")
    chosen = [name for name in arguments if not name.startswith("--")]
    for name, task in tasks().items():
        if not chosen or name in chosen:
            for row in task(effort):
                print(f"| {name} | {row.what} | {row.ftnn} | {row.others} | {row.difference} |", flush=True)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
