"""How much of a match is stored exactly, according to its segments."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest
from precis_vllm.scheduler import exact_tokens, is_as_pushed

import precis


def match(*links: tuple[int, precis.Budget | None]) -> SimpleNamespace:
    """Segments of 100 tokens: the kept entries per head, and the budget read of its parents."""
    counts = np.zeros((2, 3), np.uint32)
    return SimpleNamespace(
        matched_tokens=100 * len(links),
        links=[
            SimpleNamespace(
                counts=counts,
                segment=SimpleNamespace(
                    begin=100 * i,
                    end=100 * (i + 1),
                    kept=kept * counts.size,
                    parent_read=parent_read,
                ),
            )
            for i, (kept, parent_read) in enumerate(links)
        ],
    )


@pytest.mark.parametrize(
    ("read", "tokens"),
    [
        (None, 300),
        (precis.ALL, 300),
        (precis.ratio(1.0), 300),
        (precis.ratio(0.6), 300),  # all that the first segment stores
        (precis.ratio(0.58), 300),  # nearly all
        (precis.ratio(0.5), 100),
        (precis.entries(60), 100),  # the plug-in does not set it
    ],
)
def test_a_match_is_exact_up_to_what_was_computed_over_less(
    read: precis.Budget | None, tokens: int
) -> None:
    assert exact_tokens(match((60, None), (100, read), (100, None))) == tokens


def test_it_ends_where_an_approximation_begins() -> None:
    assert exact_tokens(match((100, None), (100, None), (100, precis.ratio(0.3)))) == 200
    assert exact_tokens(match((100, precis.ratio(0.3)))) == 100  # it has no parents


@pytest.mark.parametrize(
    ("encoding", "read", "exact"),
    [
        ("raw", None, True),
        ("raw", precis.ALL, True),
        ("raw", precis.ratio(0.5), False),
        ("int8", None, False),
        ("int4", precis.ALL, False),
        ("k6v4", precis.ALL, False),
    ],
)
def test_only_raw_rows_over_all_before_them_are_exact(
    encoding: str, read: precis.Budget | None, exact: bool
) -> None:
    link = SimpleNamespace(segment=SimpleNamespace(encoding=encoding, parent_read=read))
    assert is_as_pushed(link) == exact
