"""The colours of pictures, notebooks and pages, and the CSS of the last two, beside this file."""

from dataclasses import asdict, dataclass
from pathlib import Path
from string import Template


@dataclass(frozen=True, slots=True)
class Colours:
    """Of Okabe and Ito 2008, told apart by all kinds of colour vision; lighter on a dark ground."""

    ground: str
    text: str
    faint: str
    line: str
    inf: str
    nan: str
    float16: str
    bfloat16: str
    heat: str


LIGHT = Colours(
    ground="#ffffff",
    text="#1c1c1c",
    faint="#d9d9d9",
    line="#0072b2",
    inf="#d55e00",
    nan="#8f3f71",
    float16="#d55e00",
    bfloat16="#00694e",
    heat="#1b3f94",
)
DARK = Colours(
    ground="#15181c",
    text="#e8e8e8",
    faint="#3a3f46",
    line="#56b4e9",
    inf="#ff8c42",
    nan="#e6a3cc",
    float16="#ff8c42",
    bfloat16="#3ddbab",
    heat="#d7f5a8",
)


def variables(colours: Colours) -> str:
    """Returns colours as CSS variables."""
    return " ".join(f"--{name}: {value};" for name, value in asdict(colours).items())


# A notebook says by an attribute which theme it has; where none does, the system is asked.
_JUPYTER = {"light": "true", "dark": "false"}


def _under(theme: str) -> str:
    of_notebooks = (
        f'[data-jp-theme-light="{_JUPYTER[theme]}"]',
        f"body.vscode-{theme}",
        f'html[theme="{theme}"]',
        f'[data-theme="{theme}"]',
    )
    return ", ".join(f"{selector} .keras-mp" for selector in of_notebooks)


_VALUES = {
    "light": variables(LIGHT),
    "light_ground": LIGHT.ground,
    "under_light": _under("light"),
    "dark": variables(DARK),
    "dark_ground": DARK.ground,
    "under_dark": _under("dark"),
}


def _css(name: str) -> str:
    text = Path(__file__).with_name(name).read_text(encoding="utf-8")
    return Template(text).substitute(_VALUES)


# Of the box of a notebook, which reaches nothing outside of it, and of the body of a page.
CSS = _css("notebook.css")
PAGE = CSS + _css("page.css")
