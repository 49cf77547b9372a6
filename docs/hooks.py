"""For `make docs`: pages of files that lie elsewhere, the reference, and links out of docs/.

A link to a file that is no page goes to the project's repository, if pyproject.toml names one as
`Repository` under `project.urls`. Else it goes to a copy of the file in the site, below `source/`.
A link that leads nowhere is an error.
"""

import os
import re
import tomllib
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "CONTRIBUTING.md": "contributing.md",
    "SECURITY.md": "security.md",
    "migration/README.md": "rules.md",
}
REFERENCE = "reference/api.md"
_OPTIONS = """\
    options:
      inherited_members: true
      show_bases: false
      filters:
        - "!^_"
"""
_SOURCES = {page: source for source, page in PAGES.items()}
# Of pictures, too.
_LINK = re.compile(r"\[([^]]+)\]\(([^)\s]+)\)")
_EXAMPLE = re.compile(r"^( *)>>> .*?(?=^\s*$|\Z)", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```\n)", re.DOTALL | re.MULTILINE)
# A line of the reference, and those of its members.
_ENTRY = re.compile(r"^- \[`(keras_mp[\w.]+)`\]\(.*\n(?:  .*\n)*", re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that lie outside of docs/, and copies of the files that pages link."""
    for source, page in PAGES.items():
        files.append(File.generated(config, page, content=_text(ROOT / source)))
    if _repository() is None:
        pages = [ROOT / source for source in PAGES] + sorted((ROOT / "docs").rglob("*.md"))
        for path in sorted(set().union(*map(_linked, pages))):
            files.append(File.generated(config, _copy_of(path), content=_text(ROOT / path)))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes a page's links lead to pages, and of the reference's lines the docstrings."""
    place = page.file.src_uri
    if place == REFERENCE:
        markdown = _ENTRY.sub(_docstring, markdown)
    source = _SOURCES.get(place, f"docs/{place}")
    parts = _FENCED.split(markdown.replace("```python recipe\n", "```python\n"))
    return "".join(
        part
        if part.startswith("```")
        else _LINK.sub(lambda link: _followed(link, source, place), part)
        for part in parts
    )


def _followed(link: re.Match[str], source: str, place: str) -> str:
    text, target = link.groups()
    if target.startswith(("https://", "#")):
        return link.group()
    path, _, anchor = target.partition("#")
    found = os.path.normpath(Path(source).parent / path)
    if not (ROOT / found).exists():
        raise PluginError(f"{source}: the link to {target} leads nowhere")
    repository = _repository()
    if found in PAGES or found.startswith("docs/"):
        to = PAGES.get(found, found.removeprefix("docs/"))
    elif repository is None:
        to = _copy_of(found)
    else:
        kind = "tree" if (ROOT / found).is_dir() else "blob"
        return f"[{text}]({repository}/{kind}/main/{found})"
    return f"[{text}]({os.path.relpath(to, Path(place).parent)}{'#' if anchor else ''}{anchor})"


def _linked(page: Path) -> set[str]:
    """Returns the files that a page links and that are no pages, from the root of the project."""
    found = set()
    for part in _FENCED.split(_text(page)):
        for _, target in [] if part.startswith("```") else _LINK.findall(part):
            if not target.startswith(("https://", "#")):
                path = os.path.normpath(page.parent / target.partition("#")[0])
                found.add(os.path.relpath(path, ROOT))
    return {path for path in found if not path.startswith("docs/") and path not in PAGES}


def _copy_of(path: str) -> str:
    return f"source/{path}.txt"


def _text(path: Path) -> str:
    if path.is_dir():
        return "".join(f"{each.name}\n" for each in sorted(path.iterdir()))
    return path.read_text(encoding="utf-8")


def _repository() -> str | None:
    project = tomllib.loads(_text(ROOT / "pyproject.toml"))["project"]
    url: str | None = project.get("urls", {}).get("Repository")
    return url


def _docstring(entry: re.Match[str]) -> str:
    options = _OPTIONS if entry[1] == "keras_mp.LossScaleOptimizer" else ""
    return f"::: {entry[1]}\n{options}\n"


class Examples(griffe.Extension):
    """Makes code of the examples in docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_code, obj.docstring.value)


def _code(example: re.Match[str]) -> str:
    indent = example[1]
    return f"{indent}```pycon\n{example[0].rstrip()}\n{indent}```\n"
