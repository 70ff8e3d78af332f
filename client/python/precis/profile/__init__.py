"""Profiles: scorers and budgets per head, learnt offline from a model's attention.

policies/scores.md, "kvprobe", has the scorer, policies/budgets.md, "Profiles", the budgets.

::

    precis profile build --model smollm2 --out smollm2.json
    precis profile build --model smollm2 --recipe "lukv(keydiff)" --out budgets.json

A profile is for one model. ``global_kvprobe(profile=NAME)`` takes its scorer from it,
``lukv(keydiff, profile=NAME)`` its head budgets. With another model, or budgets of another scorer,
it is refused.
"""
