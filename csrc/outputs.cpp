// Context: the output rows of the last decode, and greedy choice from them.
#include <algorithm>
#include <cstdint>
#include <cstring>
#include <limits>

#include "context.hpp"
#include "errors.hpp"

namespace pyspec {

namespace {

// Loops over whole numbers become vector code without leave to reorder floating point; where the C library can
// choose between versions of a function, the widest that the machine has is taken.
#if defined(__x86_64__) && defined(__GLIBC__)
#define PYSPEC_WIDEST __attribute__((target_clones("avx512f", "avx2", "default")))
#else
#define PYSPEC_WIDEST
#endif

// Only the block that raised the maximum last is searched for its index.
constexpr int block_size = 4096;

struct Keys {
    int32_t least;
    int32_t greatest;
};

int32_t bits_of(float value) {
    int32_t bits = 0;
    std::memcpy(&bits, &value, sizeof(bits));
    return bits;
}

// Keeps the order of floats; NaN of either sign lies outside the infinities. Its own inverse.
inline int32_t key_of(int32_t bits) {
    return bits ^ ((bits >> 31) & 0x7FFFFFFF);
}

PYSPEC_WIDEST Keys keys_of(const float * values, int n) {
    int32_t bits[block_size];
    std::memcpy(bits, values, static_cast<size_t>(n) * sizeof(float));
    int32_t least = std::numeric_limits<int32_t>::max();
    int32_t greatest = std::numeric_limits<int32_t>::min();
    for (int i = 0; i < n; ++i) {
        const int32_t key = key_of(bits[i]);
        least = key < least ? key : least;
        greatest = key > greatest ? key : greatest;
    }
    return {least, greatest};
}

llama_token argmax(const float * row, int n_vocab) {
    constexpr float infinity = std::numeric_limits<float>::infinity();
    int32_t best = std::numeric_limits<int32_t>::min();
    int best_block = 0;
    for (int start = 0; start < n_vocab; start += block_size) {
        const Keys keys = keys_of(row + start, std::min(block_size, n_vocab - start));
        if (keys.least < key_of(bits_of(-infinity)) || keys.greatest > key_of(bits_of(infinity))) {
            throw Error("SamplerError", {{"reason", std::string("the logits contain NaN")}});
        }
        if (keys.greatest > best) {
            best = keys.greatest;
            best_block = start;
        }
    }
    float value = 0.0F;
    const int32_t bits = key_of(best);
    std::memcpy(&value, &bits, sizeof(value));
    // Zeros of both signs are a tie, and the other one may lie in an earlier block.
    const float * first = value == 0.0F ? row : row + best_block;
    return static_cast<llama_token>(std::find(first, row + n_vocab, value) - row);
}

}  // namespace

void Context::check_rows(int64_t first_row, int64_t n_rows) const {
    if (n_outputs_ == 0) {
        throw Error("NoOutputError");
    }
    if (first_row < 0 || first_row >= n_outputs_) {
        throw Error("OutputRowError", {{"row", first_row}, {"n_outputs", static_cast<int64_t>(n_outputs_)}});
    }
    if (n_rows < 0) {
        invalid_value("n_rows", n_rows, "0 or more");
    }
    if (n_rows > n_outputs_ - first_row) {
        throw Error("OutputRowError",
                    {{"row", first_row + n_rows - 1}, {"n_outputs", static_cast<int64_t>(n_outputs_)}});
    }
}

const float * Context::logits_rows(int64_t first_row, int64_t n_rows) {
    check_rows(first_row, n_rows);
    if (logits_ == nullptr) {
        logits_ = llama_get_logits(get());
    }
    if (logits_ == nullptr) {
        throw Error("NoOutputError");
    }
    return logits_ + (first_row_ + first_row) * n_vocab_;
}

const float * Context::logits_row(int64_t row) {
    return logits_rows(row, 1);
}

void Context::argmax_rows(int64_t first_row, int64_t n_rows, llama_token * out) {
    const float * rows = logits_rows(first_row, n_rows);
    for (int64_t i = 0; i < n_rows; ++i) {
        out[i] = argmax(rows + i * n_vocab_, n_vocab_);
    }
}

}  // namespace pyspec
