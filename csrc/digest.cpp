#include "digest.hpp"

#include <cstring>

namespace pyspec {

namespace {

constexpr uint64_t prime = 0x9E3779B97F4A7C15ULL;
constexpr size_t n_lanes = 4;

uint64_t mix(uint64_t state, uint64_t word) {
    state = (state ^ word) * prime;
    return state ^ (state >> 29);
}

}  // namespace

// Four independent lanes of eight bytes, so that the multiplications overlap; 20 MB of state take milliseconds.
uint64_t digest(const void * data, size_t n_bytes, uint64_t seed) {
    const auto * bytes = static_cast<const unsigned char *>(data);
    uint64_t lanes[n_lanes] = {seed ^ 1, seed ^ 2, seed ^ 3, seed ^ 4};
    size_t at = 0;
    for (; at + 8 * n_lanes <= n_bytes; at += 8 * n_lanes) {
        for (size_t lane = 0; lane < n_lanes; ++lane) {
            uint64_t word = 0;
            std::memcpy(&word, bytes + at + 8 * lane, sizeof(word));
            lanes[lane] = mix(lanes[lane], word);
        }
    }
    uint64_t state = mix(seed, n_bytes);
    for (const uint64_t lane : lanes) {
        state = mix(state, lane);
    }
    for (; at < n_bytes; ++at) {
        state = mix(state, bytes[at]);
    }
    return mix(state, state >> 32);
}

uint64_t digest(const std::string & text, uint64_t seed) {
    return digest(text.data(), text.size(), seed);
}

}  // namespace pyspec
