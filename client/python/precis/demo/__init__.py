"""The whole product on a real model: ``python -m precis.demo``."""
