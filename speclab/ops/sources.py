"""What a notebook's outcome depends on, as one hash: its own cells, the modules that it imports
(followed through), the data that these name, its profile and all that it points at, its parameters,
the locked packages.

Code counts as its syntax tree without docstrings: comments, docstrings and layout change no
outcome. The rooms `ops` (where and how a notebook runs) and `explore` (shown in open notebooks
only), and the command line are not followed, since they do not change what comes out.
"""

import ast
import contextlib
import hashlib
import json
import os
import re
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import nbformat

from speclab.profiles import load_profile, profile_names
from speclab.prompts import HUB_SETS, MIRROR
from speclab.runs import PLACE

NOT_FOLLOWED = ("speclab.ops", "speclab.__main__", "speclab.explore")
BUNDLED = {
    "project": "data/prompts"
}  # prompts that come with the kit, by the name that a profile gives them
MODELS, RECORDS = "SPECLAB_MODELS", "SPECLAB_AUTHOR_RECORDS"
FOLDERS = (MODELS, MIRROR, PLACE, RECORDS)  # environment variables that name folders
TABLE = re.compile(r"""["'](\d\d_[\w-]+)(?:\.csv)?["']""")
OF_PAIR = ("profile", "overrides")  # parameters that the checked profile stands for


def digest(
    root: Path, figures: Path, notebook: Path, profile: Any, parameters: dict[str, Any]
) -> str:
    """SHA-256 of all that the outcome of `notebook` depends on.

    parameters: all that the notebook has, its defaults too: what they name counts as well.

    figures: the folder in which tables of other notebooks lie, for a notebook that names one (as
    08_self-drafts.csv).
    """
    found = hashlib.sha256()
    cells = cells_of(notebook)
    own = {name: v for name, v in parameters.items() if name not in OF_PAIR}
    modules = followed(root, code_of(cells))
    found.update(json.dumps(cells).encode())
    for path in modules:
        found.update(f"{path.relative_to(root)}\0{_plain(path)}".encode())
    for path in [
        root / "requirements.lock",
        *named_data(root, modules),
        *pointed_at(root, profile),
        *_of_variable(RECORDS),
    ]:
        found.update(_content(path))
    for text in _texts(own):
        found.update(_named_content(root, profile, text))
    for path in named_tables(figures, tables_read(root, notebook)):
        found.update(_content(path))
    facts = (profile, _commits(root, profile), sorted(own.items()))
    found.update(repr((*facts, sys.version_info[:2])).encode())
    return found.hexdigest()


def cells_of(notebook: Path) -> list[tuple[str, str]]:
    """(kind, text) of every cell of an .ipynb file. ValueError when it is none."""
    try:
        book = nbformat.read(notebook, as_version=4)
    except Exception as error:  # nbformat and its schema have many kinds
        raise ValueError(
            f"{notebook} is no notebook ({type(error).__name__}); `make notebooks` writes it from "
            "its .py"
        ) from None
    return [(cell.cell_type, cell.source) for cell in book.cells]


def code_of(cells: list[tuple[str, str]]) -> str:
    """The code of a notebook's cells."""
    return "\n".join(text for kind, text in cells if kind == "code")


def check_twin(notebook: Path) -> str:
    """ValueError when the .py beside an .ipynb was edited and its twin is behind; a line to be said
    when the .ipynb itself was edited; "" when both agree, or there is no .py.
    """
    source, cells = notebook.with_suffix(".py"), cells_of(notebook)
    if not source.is_file():
        return ""
    import jupytext

    text = source.read_text(encoding="utf-8")
    asked = jupytext.reads(text, fmt="py:percent").cells
    made = [(cell.cell_type, cell.source.strip()) for cell in asked]
    if made == [(kind, text.strip()) for kind, text in cells]:
        return ""
    if source.stat().st_mtime_ns >= notebook.stat().st_mtime_ns:
        raise ValueError(
            f"{source} was edited, and {notebook.name}, the twin that runs, is behind: "
            "`make notebooks` writes it anew"
        )
    return (
        f"{notebook.name} was edited and is no longer what {source.name} says: it runs as it is "
        "(`make notebooks` would write it from the .py)"
    )


# ---- modules -------------------------------------------------------------------------------------


def followed(root: Path, code: str) -> list[Path]:
    """Files of all modules of the package that `code` imports, directly or through others, in order
    of their names. ValueError for one that is not Python.
    """
    wanted, seen = imported(ast.parse(code)), {}
    while wanted:
        name = wanted.pop()
        path = file_of(root, name)
        if path is None or path in seen or name.startswith(NOT_FOLLOWED):
            continue
        seen[path] = name
        try:
            wanted |= imported_by(path.read_text(encoding="utf-8"))
        except SyntaxError as error:
            raise ValueError(
                f"{path}, line {error.lineno}: {error.msg}; mend it, then call again"
            ) from None
    return sorted(seen)


@lru_cache(maxsize=256)
def imported_by(text: str) -> frozenset[str]:
    """`imported` of a module's text, which many notebooks follow."""
    return frozenset(imported(ast.parse(text)))


def imported(tree: ast.Module) -> set[str]:
    """Dotted names that a file may import from the package, wherever in the file, but for
    annotations only.
    """
    found = set()
    for node in _walk(tree):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.module:
            found |= {node.module} | {
                f"{node.module}.{alias.name}" for alias in node.names
            }
    return {name for name in found if name.split(".")[0] == "speclab"}


def _walk(tree: ast.AST) -> Iterator[ast.AST]:
    """All nodes, but what stands under `if TYPE_CHECKING`."""
    for node in ast.iter_child_nodes(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            continue
        yield node
        yield from _walk(node)


def file_of(root: Path, name: str) -> Path | None:
    """The file of a dotted name; None for the name of something inside a module."""
    place = root.joinpath(*name.split("."))
    for path in (place.with_suffix(".py"), place / "__init__.py"):
        if path.is_file():
            return path
    return None


def _plain(path: Path) -> str:
    return plain_code(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=256)
def plain_code(text: str) -> str:
    """A module's syntax tree as text, without docstrings."""
    tree = ast.parse(text)
    for node in ast.walk(tree):
        body = getattr(node, "body", None)
        if isinstance(body, list) and body and _is_text(body[0]):
            del body[0]
    return ast.dump(tree)


def _is_text(node: ast.AST) -> bool:
    value = getattr(node, "value", None)
    return isinstance(node, ast.Expr) and isinstance(getattr(value, "value", None), str)


# ---- data ----------------------------------------------------------------------------------------


def named_data(root: Path, modules: list[Path]) -> list[Path]:
    """Files below every `ROOT / "data" / …` that a module names; of recorded runs none but the
    authors' records.
    """
    folders = set()
    for module in modules:
        for node in ast.walk(ast.parse(module.read_text(encoding="utf-8"))):
            parts = _path_parts(node)
            if parts and parts[:1] == ["data"] and len(parts) > 1:
                folders.add(root.joinpath(*parts))
    runs = root / "data" / "runs"
    records = runs / "author-records"
    kept = [
        folder
        for folder in folders
        if not folder.is_relative_to(runs) or folder == records
    ]
    return sorted(path for folder in kept for path in _files(folder))


def _path_parts(node: ast.AST) -> list[str] | None:
    """["data", "paper"] of the expression ROOT / "data" / "paper", else None."""
    parts: list[str] = []
    while isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div):
        if not (
            isinstance(node.right, ast.Constant) and isinstance(node.right.value, str)
        ):
            return None
        parts.insert(0, node.right.value)
        node = node.left
    return parts if isinstance(node, ast.Name) and node.id == "ROOT" else None


def folder_of(variable: str) -> Path | None:
    """The folder that an environment variable names, absolute; None where it is not set.

    ValueError when it is not there.
    """
    named = os.environ.get(variable)
    if not named:
        return None
    folder = Path(os.path.abspath(os.path.expanduser(named)))
    if not folder.is_dir():
        raise ValueError(f"{variable}={named}: no such folder; name one, or unset it")
    return folder


def _of_variable(variable: str) -> list[Path]:
    folder = folder_of(variable)
    return sorted(_files(folder)) if folder else []


def pointed_at(root: Path, profile: Any) -> list[Path]:
    """Files that a profile points at, wherever they lie: the weights of both models, the prompts,
    the manifests of shipped traces.

    What only the hub has is not here (see `_commits`), nor are weights that a source.json names by
    checksum: nothing changes when they are made.
    """
    places = [
        *_prompt_places(root, profile.prompts),
        *_model_places(root, profile.target),
        *_model_places(root, profile.draft),
    ]
    found = {path.resolve() for place in places for path in _files(place)}
    return sorted({p for p in found if not _promised(p)} | _manifests(root, profile))


def _prompt_places(root: Path, prompts: str) -> list[Path]:
    """Of the paper's sets, their copies: revisions of the hub are pinned."""
    mirror = folder_of(MIRROR)
    if prompts == "paper":
        return [mirror / s.name for s in HUB_SETS.values()] if mirror else []
    return [root / BUNDLED.get(prompts, prompts)]


def _model_places(root: Path, spec: Any) -> list[Path]:
    attached = folder_of(MODELS)
    return [root / spec.path, *([attached / spec.path] if attached else [])]


def _commits(root: Path, profile: Any) -> list[str]:
    """Commits of both models in the hub's cache; "" for one that lies elsewhere, or nowhere yet."""
    found = []
    for spec in (profile.target, profile.draft):
        cached = None if _configs(root, spec) else _cached_config(spec)
        found.append(cached.parent.name if cached else "")
    return found


def _configs(root: Path, spec: Any) -> list[Path]:
    places = [place / "config.json" for place in _model_places(root, spec)]
    return [path for path in places if path.is_file()]


def _cached_config(spec: Any) -> Path | None:
    from huggingface_hub import try_to_load_from_cache

    if spec.path.strip("/").count("/") != 1:
        return None
    found = try_to_load_from_cache(spec.path, "config.json", revision=spec.revision)
    return Path(found) if isinstance(found, str) else None


def config_of(root: Path, spec: Any) -> Path | None:
    """The config.json of a model on this machine; None where there is none. Nothing is fetched."""
    return next(iter(_configs(root, spec)), None) or _cached_config(spec)


# ---- what parameters name ------------------------------------------------------------------------


def _texts(own: dict[str, Any]) -> list[str]:
    """Texts among the parameters of a notebook, alone or in a list."""
    values = [own[name] for name in sorted(own)]
    listed = [
        v for value in values for v in (value if type(value) is list else [value])
    ]
    return [text for text in listed if isinstance(text, str) and text]


def _named_content(root: Path, profile: Any, text: str) -> bytes:
    """What a parameter's text names besides itself, where it names anything: another profile, a
    file or folder, a folder beside the target.
    """
    paths, said = [], ""
    if text in profile_names():
        other = load_profile(text)
        shipped = (root / "data" / "traces" / text).glob("*/manifest.json")
        paths = [*pointed_at(root, other), *sorted(shipped)]
        said = repr((other, _commits(root, other)))
    targets = _model_places(root, profile.target)
    for place in [root / text, *(target.parent / text for target in targets)]:
        with contextlib.suppress(OSError, ValueError):  # a text that cannot be a name
            if not root.is_relative_to(place.resolve()):  # "." is not meant
                paths += sorted(_files(place))
    return said.encode() + b"".join(_content(path) for path in paths)


def _promised(path: Path) -> bool:
    """Whether these are the weights that the folder's source.json promises."""
    source = path.with_name("source.json")
    if path.suffix != ".safetensors" or not source.is_file():
        return False
    return digest_of(path) in source.read_text(encoding="utf-8")


def _manifests(root: Path, profile: Any) -> set[Path]:
    """Of traces: they hold the checksums of the tables."""
    place = folder_of(PLACE) or root / (profile.traces or "no traces")
    found = [*place.glob("manifest.json"), *place.glob("[!.]*/manifest.json")]
    return {path.resolve() for path in found}


def models_missing(root: Path, profile: Any) -> bool:
    """Whether weights that a source.json promises (`make pair` makes them) are not there yet."""
    for spec in (profile.target, profile.draft):
        places = _model_places(root, spec)
        promised = any((place / "source.json").is_file() for place in places)
        if promised and not any(any(p.glob("*.safetensors")) for p in places):
            return True
    return False


def tables_read(root: Path, notebook: Path) -> set[str]:
    """Names, without their ending, of other notebooks' tables that this one, or a module of its,
    names (as "08_self-drafts" or "08_self-drafts.csv"), whether they are there or not.
    """
    code = code_of(cells_of(notebook))
    modules = followed(root, code)
    texts = [code, *(path.read_text(encoding="utf-8") for path in modules)]
    found = {name for text in texts for name in TABLE.findall(text)}
    number = notebook.stem.split("_")[0]
    return {name for name in found if not name.startswith(f"{number}_")}


def named_tables(figures: Path, names: set[str]) -> list[Path]:
    """Those of these tables that are in the folder `figures`."""
    return [path for path in sorted(figures.glob("*.csv")) if path.stem in names]


def _files(place: Path) -> list[Path]:
    if place.is_file():
        return [place]
    if not place.is_dir():
        return []
    return [
        path
        for path in place.rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
    ]


def _content(path: Path) -> bytes:
    if not path.is_file():
        return b""
    return f"{path.name}\0{digest_of(path)}".encode()


def digest_of(path: Path) -> str:
    """SHA-256 of a file, read once in a call."""
    facts = path.stat()
    return _sha256(path, facts.st_size, facts.st_mtime_ns)


@lru_cache(maxsize=4096)
def _sha256(path: Path, size: int, changed: int) -> str:
    """Checksum of a file's content, read once however many notebooks depend on it."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()
