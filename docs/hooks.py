"""For `make docs`: makes pages of what lies elsewhere, and follows links out of docs/.

A link to a file that is no page becomes text with its path; one that leads nowhere is an error.
"""

import html
import os
import re
from pathlib import Path
from typing import Any

import griffe
from mkdocs.exceptions import PluginError
from mkdocs.structure.files import File

ROOT = Path(__file__).resolve().parents[1]
PAGES = {
    "README.md": "index.md",
    "CHANGELOG.md": "changelog.md",
    "migration/README.md": "rules.md",
}
_SOURCES = {page: source for source, page in PAGES.items()}
_LINK = re.compile(r"(?<!!)\[([^]]+)\]\(([^)\s]+)\)")
_EXAMPLE = re.compile(r"^( *)>>> .*?(?=^\s*$|\Z)", re.DOTALL | re.MULTILINE)
_FENCED = re.compile(r"(^```.*?^```\n)", re.DOTALL | re.MULTILINE)


def on_files(files: Any, config: Any) -> Any:
    """Adds the pages that lie outside of docs/."""
    for source, page in PAGES.items():
        content = (ROOT / source).read_text(encoding="utf-8")
        files.append(File.generated(config, page, content=content))
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Makes a page's links lead to pages."""
    source = _SOURCES.get(page.file.src_uri, f"docs/{page.file.src_uri}")
    parts = _FENCED.split(markdown.replace("```python recipe\n", "```python\n"))
    return "".join(
        part if part.startswith("```") else _LINK.sub(lambda link: _followed(link, source), part)
        for part in parts
    )


def _followed(link: re.Match[str], source: str) -> str:
    text, target = link.groups()
    if target.startswith(("https://", "#")):
        return link.group()
    path, _, anchor = target.partition("#")
    found = os.path.normpath(Path(source).parent / path)
    if not (ROOT / found).exists():
        raise PluginError(f"{source}: the link to {target} leads nowhere")
    if found in PAGES or re.fullmatch(r"docs/[^/]+\.md", found):
        name = PAGES.get(found, Path(found).name)
        return f"[{text}]({name}{'#' if anchor else ''}{anchor})"
    return f'<abbr title="{html.escape(found)}">{text}</abbr>'


class Examples(griffe.Extension):
    """Makes code of the examples in docstrings."""

    def on_object(self, *, obj: griffe.Object, **_: Any) -> None:
        if obj.docstring is not None:
            obj.docstring.value = _EXAMPLE.sub(_code, obj.docstring.value)


def _code(example: re.Match[str]) -> str:
    indent = example[1]
    return f"{indent}```pycon\n{example[0].rstrip()}\n{indent}```\n"
