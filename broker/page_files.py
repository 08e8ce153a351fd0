"""The status page's files, read once from the package; nothing on the page comes from elsewhere."""

from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from typing import Final

CONTENT_POLICY: Final = (
    "default-src 'self'; object-src 'none'; base-uri 'none'; form-action 'none'; "
    "frame-ancestors 'none'"
)
_KINDS: Final = {
    "index.html": "text/html; charset=utf-8",
    "page.css": "text/css; charset=utf-8",
    "page.js": "text/javascript; charset=utf-8",
    "charts.js": "text/javascript; charset=utf-8",
    "icon.svg": "image/svg+xml",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class PageFile:
    """One file of the page."""

    content: bytes
    kind: str


@cache
def page_files() -> dict[str, PageFile]:
    """Return the page's files by path."""
    folder = files("broker.page")
    found = {
        f"/{name}": PageFile(content=(folder / name).read_bytes(), kind=kind)
        for name, kind in _KINDS.items()
    }
    return {"/": found["/index.html"], **found}
