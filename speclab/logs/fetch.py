"""Files that others published: whoever wants them fetches them. Each file is checked against the
digest that is written here. They are no part of the kit, because none of them names a licence.
"""

import gzip
import hashlib
import http.client
import urllib.request
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from speclab.study.runs import written


@dataclass(frozen=True)
class Published:
    """`files` (digests by name: SHA-256, or the blob ids of git) at the address `base`, and the
    `folder` that they are stored in.

    again: the command that fetches the files.
    """

    base: str
    files: Mapping[str, str]
    folder: Path
    again: str

    def fetch(self, out: Path | None = None, base: str | None = None) -> list[Path]:
        """Fetch the files into a folder; returns their paths.

        A file that is already right is kept. No file appears under its name before its digest is
        right. OSError: the folder cannot be made. ValueError: no network, not found, other bytes.
        """
        folder = out or self.folder
        folder.mkdir(parents=True, exist_ok=True)
        address = (base or self.base).rstrip("/")
        paths = [folder / name for name in self.files]
        for path in paths:
            if path.is_file() and self.is_right(path.name, path.read_bytes()):
                continue
            url = f"{address}/{path.name}"
            try:
                with urllib.request.urlopen(url, timeout=30) as answer:
                    content = answer.read()
            except (OSError, http.client.HTTPException) as error:
                raise ValueError(
                    f"{url} could not be fetched: {error}. Check the network, and whether the "
                    "repository is still public. Without a network, copy the files from another "
                    f"machine into {folder}. Files that were fetched are kept, and `{self.again}` "
                    "continues from there"
                ) from None
            self.check(url, path.name, content)
            written(path, partial(Path.write_bytes, data=content))
        return paths

    def is_right(self, name: str, content: bytes) -> bool:
        """Whether `content` is the published file `name`."""
        wanted = self.files[name]
        if len(wanted) == 64:
            return hashlib.sha256(content).hexdigest() == wanted
        blob = b"blob %d\0" % len(content) + content  # of which git takes the SHA-1
        return hashlib.sha1(blob).hexdigest() == wanted

    def check(self, place: Path | str, name: str, content: bytes) -> None:
        """ValueError if `content`, read from a `place`, is not the published file `name`."""
        if not self.is_right(name, content):
            raise ValueError(
                f"{place} is not the published file {name}, or not all of it ({len(content)} "
                f"bytes): run `{self.again}`, or check what is served there"
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
