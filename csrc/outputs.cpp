// Context: the output rows of the last decode, and greedy choice from them.
#include <algorithm>
#include <limits>

#include "context.hpp"
#include "errors.hpp"

namespace pyspec {

namespace {

// Rows are scanned in blocks: the maximum of a block is a loop without branches, which compilers turn into vector
// code, and only the block that raised the maximum last is searched for its index.
constexpr int block_size = 2048;
constexpr int n_lanes = 16;

struct BlockMax {
    float value;
    bool has_nan;
};

BlockMax block_max(const float * values, int n) {
    float lanes[n_lanes];
    int unordered[n_lanes] = {};
    for (float & lane : lanes) {
        lane = -std::numeric_limits<float>::infinity();
    }
    int i = 0;
    for (; i + n_lanes <= n; i += n_lanes) {
        for (int lane = 0; lane < n_lanes; ++lane) {
            const float value = values[i + lane];
            lanes[lane] = value > lanes[lane] ? value : lanes[lane];
            unordered[lane] |= value != value ? 1 : 0;
        }
    }
    for (; i < n; ++i) {
        lanes[0] = values[i] > lanes[0] ? values[i] : lanes[0];
        unordered[0] |= values[i] != values[i] ? 1 : 0;
    }
    BlockMax result{lanes[0], unordered[0] != 0};
    for (int lane = 1; lane < n_lanes; ++lane) {
        result.value = lanes[lane] > result.value ? lanes[lane] : result.value;
        result.has_nan |= unordered[lane] != 0;
    }
    return result;
}

llama_token argmax(const float * row, int n_vocab) {
    float best = -std::numeric_limits<float>::infinity();
    int best_block = 0;
    for (int start = 0; start < n_vocab; start += block_size) {
        const BlockMax block = block_max(row + start, std::min(block_size, n_vocab - start));
        if (block.has_nan) {
            throw Error("SamplerError", {{"reason", std::string("the logits contain NaN")}});
        }
        if (block.value > best) {
            best = block.value;
            best_block = start;
        }
    }
    int index = best_block;
    while (row[index] != best) {
        ++index;
    }
    return index;
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
    return logits_ + first_row * n_vocab_;
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
