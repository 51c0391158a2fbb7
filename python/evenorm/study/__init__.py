"""The study: claims about layer norm that texts repeat, measured on real runs.

    python -m evenorm.study [SECTION ...] [--smoke] [--output DIR] [--list]

A section is a module NAME (its runs: settings and a seed in, plain numbers out) and a module NAME_page (what is computed
from all of its runs, its plots, its text). `_sections.py` lists them; nothing else knows their names.
"""
