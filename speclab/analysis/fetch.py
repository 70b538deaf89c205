"""Files that others published: fetched by whoever wants them, each held against the digest that is
written here, and no part of the kit, for none of them names a licence.
"""

import gzip
import http.client
import urllib.request
import zlib
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from speclab.runs import written

TIMEOUT_S = 30


class FetchError(RuntimeError):
    """A file could not be fetched, or is not the file it should be; the message says what to do."""


@dataclass(frozen=True)
class Published:
    """`files` (digests by name) under the address `base`, and `folder`, their place.

    digest: of a file's bytes; again: the command that fetches them; variable: the environment
    variable that names another folder which has them.
    """

    base: str
    files: Mapping[str, str]
    digest: Callable[[bytes], str]
    folder: Path
    again: str
    variable: str

    def fetch(self, out: Path | str | None = None, base: str | None = None) -> list[Path]:
        """Fetch the files into a folder; returns their paths.

        A file that is there and right is kept; nothing appears under its own name before its digest
        is right. OSError: a folder that cannot be made. FetchError: no network, not found, other
        bytes.
        """
        folder = Path(out or self.folder)
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
                    f"{name}: {len(content)} bytes of digest {self.digest(content)}, but the "
                    f"file has {wanted}: not the published file of that commit, or not all of it; "
                    f"run `{self.again}` again, or look at what answers at that address"
                )
            written(path, partial(Path.write_bytes, data=content))
        return paths

    def _download(self, url: str) -> bytes:
        try:
            with urllib.request.urlopen(url, timeout=TIMEOUT_S) as answer:
                return answer.read()
        except (OSError, http.client.HTTPException) as error:
            raise FetchError(
                f"{url}: {error}. Is the repository still public? Without a network, copy the "
                f"files from another machine into a folder and set {self.variable}=folder; what "
                f"was fetched is kept, and `{self.again}` goes on from there"
            ) from None

    def check(self, path: Path, content: bytes, name: str) -> None:
        """ValueError where `content`, read from `path`, bears the `name` of one of the files and is
        not that file.
        """
        found = self.digest(content)
        if found != self.files.get(name, found):
            raise ValueError(
                f"{path} is not the published file {name} (its digest is {found}): run "
                f"`{self.again}`, or rename it"
            )


def content_of(path: Path) -> bytes:
    """A file's bytes, decompressed where its name ends in .gz; ValueError where that is cut."""
    content = path.read_bytes()
    if path.suffix != ".gz":
        return content
    try:
        return gzip.decompress(content)
    except (OSError, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged or cut ({error}): fetch it again") from None
