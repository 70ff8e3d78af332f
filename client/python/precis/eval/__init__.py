"""Compares recipes on the user's own model and text: which keep the entries that answers need?

::

    precis eval --quick
    python -m precis.eval --model PATH --text novel.txt --recipes ada_keydiff,kvzip --keep 0.3,0.1

Facts are hidden in contexts, the contexts are compressed before any question is known, and the
model answers questions about the facts from the kept entries. Needs ``pip install
'./client/python[hf]'`` from the repository, and matplotlib for plots.
"""
