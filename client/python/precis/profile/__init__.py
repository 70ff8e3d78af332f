"""Profiles: budgets per head, learnt offline from a model's attention.

policies/budgets.md, "Profiles", has the tables and the solver.

::

    precis profile build --model smollm2 --recipe "lukv(keydiff)" --out smollm2.json

A profile belongs to one model and one scorer. Recipes such as ``lukv(keydiff, profile=NAME)`` take
their budgets from it; other models and scorers refuse it.
"""
