// A 64-bit digest of bytes, to tell models, settings and damaged state apart; not for secrets.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>

namespace pyspec {

uint64_t digest(const void * data, size_t n_bytes, uint64_t seed = 0);
uint64_t digest(const std::string & text, uint64_t seed = 0);

}  // namespace pyspec
