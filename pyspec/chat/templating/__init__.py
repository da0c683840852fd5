"""Chat templates that strangers wrote, rendered within limits.

Owns the guarded Jinja environment: what a template may name, and how much work, text and depth it gets.
Leaves messages and models to `pyspec.chat.template` and `pyspec.chat`; importing this package imports no Jinja.
"""
