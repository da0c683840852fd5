// The syntax and the shape of a GBNF grammar, checked before llama.cpp compiles it.
// Owns the refusals with line and column, and those that llama.cpp answers with an endless loop, an abort or a line on
// stderr; compiling and matching are llama.cpp's (src/llama-grammar.cpp), reached through grammar.hpp.
#pragma once

#include <string>

#include "llama.h"

namespace pyspec {

// Throws GrammarError: a syntax error, an undefined rule, no root, left recursion, a rule that can produce nothing, or
// repetitions and ambiguity whose expansion would not fit into memory or time.
void check_gbnf(const std::string & text, const std::string & root, const llama_vocab * vocab);

}  // namespace pyspec
