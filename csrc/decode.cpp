// Context: decoding. Owns every check before llama_decode and the meaning of its status codes.
#include <algorithm>
#include <exception>
#include <limits>

#include "context.hpp"
#include "errors.hpp"
#include "log.hpp"

namespace pyspec {

namespace {

enum Status : int32_t {
    status_ok = 0,
    status_no_slot = 1,
    status_aborted = 2,
    status_invalid = -1,
    status_exception = -4,  // ours: something was thrown
};

}  // namespace

bool Context::on_abort_poll(void * self) {
    auto * context = static_cast<Context *>(self);
    return context->abort_.load(std::memory_order_relaxed) || context->interrupt_.poll();
}

llama_seq_id Context::checked_seq(int64_t seq_id) const {
    if (seq_id < 0 || seq_id >= static_cast<int64_t>(n_seq_max_)) {
        throw Error("SequenceIdError", {{"seq_id", seq_id}, {"n_seq_max", static_cast<int64_t>(n_seq_max_)}});
    }
    return static_cast<llama_seq_id>(seq_id);
}

void Context::check_size(int64_t n_tokens, int64_t n_outputs) const {
    if (n_tokens == 0) {
        throw Error("EmptyBatchError");
    }
    if (n_tokens > static_cast<int64_t>(n_batch_)) {
        throw Error("BatchTooLargeError", {{"n_tokens", n_tokens}, {"n_batch", static_cast<int64_t>(n_batch_)}});
    }
    if (n_outputs < 0 || n_outputs > n_tokens) {
        invalid_value("n_outputs", n_outputs, "from 0 to the number of tokens (" + std::to_string(n_tokens) + ")");
    }
    if (n_outputs > static_cast<int64_t>(n_outputs_max_)) {
        throw Error("TooManyOutputsError",
                    {{"n_outputs", n_outputs}, {"n_outputs_max", static_cast<int64_t>(n_outputs_max_)}});
    }
}

void Context::check_tokens(const llama_token * tokens, int32_t n_tokens) const {
    for (int32_t i = 0; i < n_tokens; ++i) {
        if (tokens[i] < 0 || tokens[i] >= n_vocab_) {
            throw Error("TokenRangeError", {{"token", static_cast<int64_t>(tokens[i])},
                                            {"index", static_cast<int64_t>(i)},
                                            {"n_vocab", static_cast<int64_t>(n_vocab_)}});
        }
    }
}

// llama.cpp lets an empty sequence begin anywhere; a memory that lost its past would then go on without a word.
void Context::check_start(llama_seq_id seq_id, int64_t pos, int64_t n_tokens) const {
    const int64_t expected = static_cast<int64_t>(llama_memory_seq_pos_max(memory_, seq_id)) + 1;
    if (pos != expected) {
        throw Error("PositionError", {{"seq_id", static_cast<int64_t>(seq_id)}, {"pos", pos}, {"expected", expected}});
    }
    if (pos + n_tokens > traits_.pos_end) {
        throw Error("ContextFullError", {{"n_past", pos}, {"n_new", n_tokens}, {"n_ctx", traits_.pos_end}});
    }
}

void Context::decode(const llama_token * tokens, int64_t n_tokens, int64_t pos, int64_t seq_id, int64_t n_outputs) {
    check_size(n_tokens, n_outputs);
    const auto n = static_cast<int32_t>(n_tokens);
    check_tokens(tokens, n);
    const llama_seq_id seq = checked_seq(seq_id);
    check_start(seq, pos, n_tokens);

    const auto start = static_cast<llama_pos>(pos);
    const auto n_rows = static_cast<int32_t>(n_outputs);
    const int32_t n_computed = traits_.rows_of_all_tokens && n_rows > 0 ? n : n_rows;
    check_size(n_tokens, n_computed);
    for (int32_t i = 0; i < n; ++i) {
        pos_[i] = start + i;
        seq_ids_[i] = seq;
        outputs_[i] = i >= n - n_computed ? 1 : 0;
    }
    run(tokens, n, n_rows);
    first_row_ = n_computed - n_rows;
}

void Context::decode_batch(const BatchView & batch) {
    const int64_t n_outputs = batch.n_tokens - std::count(batch.outputs, batch.outputs + batch.n_tokens, 0);
    check_size(batch.n_tokens, n_outputs);
    const auto n = static_cast<int32_t>(batch.n_tokens);
    check_tokens(batch.tokens, n);

    std::vector<int64_t> n_of(n_seq_max_, 0);
    for (int32_t i = 0; i < n; ++i) {
        ++n_of[checked_seq(batch.seq_ids[i])];
    }
    const int64_t n_first = n_of[batch.seq_ids[0]];
    const bool is_wide = *std::max_element(n_of.begin(), n_of.end()) > 1;
    if (n_first != n && (traits_.mixes_sequences || (traits_.one_token_a_sequence && is_wide))) {
        unsupported("decoding several sequences at once", "llama.cpp mixes up their states for this architecture",
                    "decode one sequence after the other");
    }
    if (traits_.rows_of_all_tokens && n_outputs != 0 && n_outputs != batch.n_tokens) {
        unsupported("choosing output rows of a batch", "llama.cpp's graph of this architecture gives the wrong ones",
                    "ask for all of them or for none");
    }
    std::vector<int64_t> expected(n_seq_max_, -1);
    for (int32_t i = 0; i < n; ++i) {
        const llama_seq_id seq = batch.seq_ids[i];
        const int64_t pos = batch.pos[i];
        if (expected[seq] < 0) {
            check_start(seq, pos, n_of[seq]);
        } else if (pos != expected[seq]) {
            throw Error("PositionError",
                        {{"seq_id", static_cast<int64_t>(seq)}, {"pos", pos}, {"expected", expected[seq]}});
        }
        expected[seq] = pos + 1;
    }
    std::copy_n(batch.pos, n, pos_.begin());
    std::copy_n(batch.seq_ids, n, seq_ids_.begin());
    std::copy_n(batch.outputs, n, outputs_.begin());
    run(batch.tokens, n, static_cast<int32_t>(n_outputs));
}

void Context::run(const llama_token * tokens, int32_t n_tokens, int32_t n_outputs) {
    if (abort_.exchange(false, std::memory_order_relaxed)) {
        throw Error("AbortedError");
    }
    if (n_outputs_ > 0) {
        // Otherwise llama.cpp's counters take two decodes for one.
        llama_synchronize(get());
    }
    n_outputs_ = 0;
    first_row_ = 0;
    logits_ = nullptr;
    std::fill(n_undoable_.begin(), n_undoable_.end(), 0);

    llama_batch batch{};
    batch.n_tokens = n_tokens;
    batch.token = const_cast<llama_token *>(tokens);
    batch.pos = pos_.data();
    batch.n_seq_id = n_seq_ids_.data();
    batch.seq_id = seq_id_ptrs_.data();
    batch.logits = outputs_.data();

    const LogCapture log;
    std::string thrown;
    int32_t status = status_exception;
    interrupt_.start();
    try {
        status = llama_decode(get(), batch);
    } catch (const std::exception & error) {
        thrown = error.what();
    }
    // After these two the memory is as it was before the call.
    const bool unchanged = status == status_no_slot || status == status_invalid;
    for (int32_t i = 0; i < n_tokens && !unchanged; ++i) {
        rollback_pending_[seq_ids_[i]] = false;
    }
    if (status != status_ok) {
        throw_failed(status, n_tokens, log.reason(thrown.empty() ? "llama.cpp gave no reason" : thrown));
    }
    for (int32_t i = 0; i < n_tokens; ++i) {
        ++n_undoable_[seq_ids_[i]];
    }
    n_outputs_ = n_outputs;
}

void Context::throw_failed(int32_t status, int32_t n_tokens, const std::string & reason) {
    if (status == status_aborted) {
        abort_.store(false, std::memory_order_relaxed);
        interrupt_.rethrow();
        throw Error("AbortedError");
    }
    if (status == status_no_slot) {
        int64_t n_past = pos_[0];
        for (uint32_t seq = 0; kv_unified_ && seq < n_seq_max_; ++seq) {
            if (static_cast<llama_seq_id>(seq) != seq_ids_[0]) {
                n_past += llama_memory_seq_pos_max(memory_, static_cast<llama_seq_id>(seq)) + 1;
            }
        }
        throw Error("ContextFullError", {{"n_past", n_past},
                                         {"n_new", static_cast<int64_t>(n_tokens)},
                                         {"n_ctx", static_cast<int64_t>(n_ctx_seq_)}});
    }
    throw Error("DecodeError", {{"status", static_cast<int64_t>(status)}, {"reason", reason}});
}

}  // namespace pyspec
