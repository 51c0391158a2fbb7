"""The study: claims about layer norm that texts repeat, measured on real runs. ../README.md says how to run it.

A section is two modules. NAME has its runs: settings and a seed in, plain numbers out. NAME_page has what is computed from
all of its runs, its plots and its text. `_sections.py` lists the sections; nothing else knows their names.
"""
