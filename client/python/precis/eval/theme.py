"""The colours of the page and its plots, for light and for dark screens."""

from __future__ import annotations

# By name: the colour on a light screen and on a dark one. Text and lines have enough contrast with
# "paper" in both. The series are those of Okabe and Ito, which people with colour blindness can
# tell apart, made darker or lighter where they would be too close to the paper.
COLOURS = {
    "paper": ("#ffffff", "#14171c"),
    "ink": ("#1b1f24", "#e4e7ec"),
    "quiet": ("#57606b", "#a3acb9"),
    "rule": ("#d5dae0", "#38404b"),
    "panel": ("#f3f6f9", "#1d222a"),
    "link": ("#0a5ea8", "#79b8f3"),
    "others": ("#b4bac2", "#57606c"),
    "series1": ("#0072b2", "#4aa5e0"),
    "series2": ("#d55e00", "#f5863a"),
    "series3": ("#009e73", "#2fc39a"),
    "series4": ("#b8578f", "#e08fc1"),
    "series5": ("#a87b00", "#e8b32c"),
    "series6": ("#2d93cc", "#9bd7fb"),
}
LIGHT = {name: light for name, (light, _) in COLOURS.items()}
SERIES = tuple(name for name in COLOURS if name.startswith("series"))


def css() -> str:
    """Declares each colour as a custom property of the root, for the screen's colour scheme."""
    light, dark = (
        "".join(f"--{name}:{pair[i]};" for name, pair in COLOURS.items()) for i in (0, 1)
    )
    return (
        f":root{{color-scheme:light dark;{light}}}"
        f"@media (prefers-color-scheme:dark){{:root{{{dark}}}}}"
    )


def themed(svg: str) -> str:
    """The SVG of a figure that was drawn in LIGHT, with colours that follow the screen's scheme."""
    for name, colour in LIGHT.items():
        svg = svg.replace(colour, f"var(--{name})")
    return svg.replace("</style>", f"{css()}</style>", 1)
