"""Which recipe keeps what a model needs: an evaluation on the user's own model and text.

::

    precis eval --quick
    python -m precis.eval --model PATH --text novel.txt --recipes ada_keydiff,kvzip --keep 0.3,0.1

Facts are hidden in contexts, the contexts compressed before any question is known, and the answers
asked for from what was kept. Needs ``pip install './client/python[hf]'`` from the repository, and
matplotlib for plots.
"""
