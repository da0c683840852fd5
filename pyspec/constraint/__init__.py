"""What a text must look like: schemas, regular expressions, grammars.

`kinds` has what users write, `matcher` follows a text, `sampler` lets a generation choose within it.
"""

from pyspec.constraint.kinds import Choice, Constraint, Json, JsonSchema, Lark, Regex, as_constraint

__all__ = ["Choice", "Constraint", "Json", "JsonSchema", "Lark", "Regex", "as_constraint"]
