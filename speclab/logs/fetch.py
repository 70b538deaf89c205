"""Files that others published: whoever wants them fetches them. Each file is checked against the
digest that is written here. They are no part of the kit, because none of them names a licence.
"""

import gzip
import http.client
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from speclab.study.runs import written

TIMEOUT_S = 30


class FetchError(RuntimeError):
    """A file could not be fetched, or is not the expected file. The message says what to do."""


@dataclass(frozen=True)
class Published:
    """`files` (digests by name) at the address `base`, and the `folder` that they are stored in.

    digest: computes a file's digest from its bytes. again: the command that fetches the files.
    variable: the environment variable that names another folder with them.
    """

    base: str
    files: Mapping[str, str]
    digest: Callable[[bytes], str]
    folder: Path
    again: str
    variable: str

    def fetch(self, out: Path | str | None = None, base: str | None = None) -> list[Path]:
        """Fetch the files into a folder; returns their paths.

        A file that is already right is kept. No file appears under its name before its digest is
        right. OSError: the folder cannot be made. FetchError: no network, not found, other bytes.
        """
        folder = Path(out or self.folder)
        folder.mkdir(parents=True, exist_ok=True)
        address = (base or self.base).rstrip("/")
        paths = []
        for name, wanted in self.files.items():
            path = folder / name
            paths.append(path)
            if path.is_file() and self.digest(path.read_bytes()) == wanted:
                continue
            content = self._download(f"{address}/{name}")
            if self.digest(content) != wanted:
                raise FetchError(
                    f"{name} is not the published file, or not all of it: {len(content)} bytes "
                    f"with digest {self.digest(content)} instead of {wanted}; run `{self.again}` "
                    "again, or check what is served at that address"
                )
            written(path, partial(Path.write_bytes, data=content))
        return paths

    def _download(self, url: str) -> bytes:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise FetchError(
                f"{url} could not be fetched: {error}. Check the network, and whether the "
                "repository is still public. Without a network, copy the files from another "
                f"machine into a folder and set {self.variable}=folder. Files that were fetched "
                f"are kept, and `{self.again}` continues from there"
            ) from None

    def check(self, path: Path, content: bytes, name: str) -> None:
        """ValueError if `content`, read from `path`, has the `name` of one of the files but is not
        that file.
        """
        found = self.digest(content)
        if found != self.files.get(name, found):
            raise ValueError(
                f"{path} is not the published file {name} (its digest is {found}): run "
                f"`{self.again}`, or rename the file"
            )


def decompressed(path: Path) -> bytes:
    """A file's bytes, decompressed if its name ends in .gz. ValueError if the file is damaged."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or cut ({error}): fetch it again") from None
