"""Finds the recipe that keeps what a model needs, on the user's own model and text.

::

    precis eval --quick
    python -m precis.eval --model PATH --text novel.txt --recipes ada_keydiff,kvzip --keep 0.3,0.1

Facts are hidden in contexts, the contexts are compressed before any question is known, and the
answers are asked for from the kept entries. Needs ``pip install './client/python[hf]'`` from the
repository, and matplotlib for plots.
"""
