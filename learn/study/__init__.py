"""The study: measures the claims that texts make about layer norm on small networks. ../README.md says how to run it.

A section consists of two modules. NAME performs the runs: it takes settings and a seed and returns plain numbers.
NAME_page computes the verdicts, the plots and the text from all runs. `_sections.py` lists the sections.
"""
