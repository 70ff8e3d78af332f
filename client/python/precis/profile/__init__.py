"""Profiles: budgets per head, learnt offline from a model's attention.

policies/budgets.md, "Profiles", has the tables and the solver.

::

    precis profile build --model smollm2 --recipe "lukv(keydiff)" --out smollm2.json

A profile is for one model and one scorer. Recipes such as ``lukv(keydiff, profile=NAME)`` take
their head budgets from it. With another model or scorer it is refused.
"""
