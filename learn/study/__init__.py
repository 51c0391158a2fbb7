"""The study: claims that texts make about layer norm, measured on real runs. ../README.md says how to run it.

A section is two modules. NAME performs the runs: it takes settings and a seed and gives plain numbers. NAME_page
computes the verdicts, the plots and the text from all runs. `_sections.py` lists the sections.
"""
